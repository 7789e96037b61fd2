#include "server/state_store/memory_state_store.h"

#include "core/base/status_macros.h"

namespace embla {

absl::StatusOr<StateEntry> MemoryStateStore::Get(std::string_view key) const {
  const MutexLock lock(mu_);
  return map_.Get(key);
}

absl::StatusOr<std::vector<StateEntry>> MemoryStateStore::List(std::string_view prefix) const {
  const MutexLock lock(mu_);
  return map_.List(prefix);
}

absl::StatusOr<Revision> MemoryStateStore::Commit(std::span<const StateCompare> compares,
                                                  std::span<const StateWrite> writes) {
  EMBLA_RETURN_IF_ERROR(ValidateCommit(compares, writes));
  const MutexLock lock(mu_);
  EMBLA_RETURN_IF_ERROR(map_.Check(compares));
  hub_.Publish(map_.Apply(writes));  // Under the lock: watchers see commits in their order.
  return map_.revision();
}

std::unique_ptr<StateWatch> MemoryStateStore::Watch(std::string_view prefix) {
  return hub_.Watch(prefix);
}

Revision MemoryStateStore::revision() const {
  const MutexLock lock(mu_);
  return map_.revision();
}

}  // namespace embla
