// A state store that ends with its process: for tests and for throw-away clusters.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/mutex.h"
#include "server/state_store/state_map.h"
#include "server/state_store/state_store.h"
#include "server/state_store/watch_hub.h"

namespace embla {

// Lock order: mu_, then the hub's.
class MemoryStateStore final : public StateStore {
 public:
  absl::StatusOr<StateEntry> Get(std::string_view key) const override;
  absl::StatusOr<std::vector<StateEntry>> List(std::string_view prefix) const override;
  absl::StatusOr<Revision> Commit(std::span<const StateCompare> compares,
                                  std::span<const StateWrite> writes) override;
  std::unique_ptr<StateWatch> Watch(std::string_view prefix) override;
  Revision revision() const override;

 private:
  mutable Mutex mu_;
  StateMap map_ ABSL_GUARDED_BY(mu_);
  WatchHub hub_;
};

}  // namespace embla
