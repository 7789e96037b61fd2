#include "server/shard/journal.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/names.h"

namespace embla {

absl::Status Journal::Write(const Decision& decision) {
  Mutex mu;
  CondVar told;
  std::optional<absl::Status> result;
  EMBLA_RETURN_IF_ERROR(Append(decision, Durability::kSynced, [&](const absl::Status& status) {
    const MutexLock lock(mu);
    result = status;
    told.NotifyAll();
  }));
  const MutexLock lock(mu);
  while (!result.has_value()) told.Wait(mu);
  return *result;
}

absl::Status CheckDurability(const TableSpec& spec, const Journal* journal) {
  if (spec.durability == TableDurability::kNode) return absl::OkStatus();
  if (journal != nullptr && journal->keeps_rows()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "updates of table ", spec.name, " are to be ", ToAbsl(NameOf(spec.durability)),
      " when they are acknowledged, and this node keeps none: start it with --data-dir and a "
      "--durability other than none, or say embla table set ",
      spec.name, " durability=node"));
}

}  // namespace embla
