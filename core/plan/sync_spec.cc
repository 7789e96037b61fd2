#include "core/plan/sync_spec.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

absl::Status CheckSyncRange(const char* field, std::uint32_t value, std::uint32_t least,
                            std::uint32_t most) {
  if (least <= value && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("sync ", field, " is ", value, ", allowed is ", least, " to ", most));
}

}  // namespace

absl::Status SyncSpec::Validate() const {
  EMBLA_RETURN_IF_ERROR(CheckSyncRange("step_timeout_ms", step_timeout_ms, 100, 3'600'000));
  EMBLA_RETURN_IF_ERROR(CheckSyncRange("steps_ahead_max", steps_ahead_max, 1, 255));
  if (on_silence == OnSilence::kClose || on_silence == OnSilence::kFail) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("sync on_silence has the unknown value ", static_cast<int>(on_silence)));
}

}  // namespace embla
