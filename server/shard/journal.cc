#include "server/shard/journal.h"

#include <optional>

#include "core/base/mutex.h"
#include "core/base/status_macros.h"

namespace embla {

absl::Status Journal::Write(const Decision& decision) {
  Mutex mu;
  CondVar told;
  std::optional<absl::Status> result;
  EMBLA_RETURN_IF_ERROR(Append(decision, [&](const absl::Status& status) {
    const MutexLock lock(mu);
    result = status;
    told.NotifyAll();
  }));
  const MutexLock lock(mu);
  while (!result.has_value()) told.Wait(mu);
  return *result;
}

}  // namespace embla
