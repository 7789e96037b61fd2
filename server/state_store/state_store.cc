#include "server/state_store/state_store.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

absl::Status CheckKey(const std::string& key) {
  if (!key.empty() && key.size() <= kStateKeyBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a state key has ", key.size(), " bytes, allowed is 1 to ", kStateKeyBytesMax));
}

}  // namespace

absl::Status ValidateCommit(std::span<const StateCompare> compares,
                            std::span<const StateWrite> writes) {
  if (compares.size() > kStateCommitOpsMax || writes.size() > kStateCommitOpsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a commit of ", compares.size(), " compares and ", writes.size(),
                     " writes, allowed are ", kStateCommitOpsMax, " of each"));
  }
  for (const StateCompare& compare : compares) EMBLA_RETURN_IF_ERROR(CheckKey(compare.key));
  std::size_t bytes = 0;
  std::set<std::string_view> keys;
  for (const StateWrite& write : writes) {
    EMBLA_RETURN_IF_ERROR(CheckKey(write.key));
    bytes += write.key.size() + (write.value ? write.value->size() : 0);
    if (!keys.insert(write.key).second) {
      return absl::InvalidArgumentError(absl::StrCat("a commit writes ", write.key, " twice"));
    }
  }
  if (bytes <= kStateCommitBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a commit of ", bytes, " bytes, allowed are ", kStateCommitBytesMax));
}

}  // namespace embla
