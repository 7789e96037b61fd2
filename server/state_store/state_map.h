// The content of a state store in memory: what every implementation that holds it itself shares.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/state_store/state_store.h"

namespace embla {

// Thread safety: none.
class StateMap {
 public:
  StateMap() = default;
  // The state after the commit `revision`.
  StateMap(Revision revision, std::vector<StateEntry> entries);

  absl::StatusOr<StateEntry> Get(std::string_view key) const;
  std::vector<StateEntry> List(std::string_view prefix) const;

  // Aborted names the first key that changed.
  absl::Status Check(std::span<const StateCompare> compares) const;
  // Applies `writes` as the next revision; returns what watchers are told.
  std::vector<StateEvent> Apply(std::span<const StateWrite> writes);

  Revision revision() const { return revision_; }
  Revision next_revision() const { return Revision{static_cast<std::uint64_t>(revision_) + 1}; }

 private:
  struct Item {
    std::string value;
    Revision revision{};
  };

  std::map<std::string, Item, std::less<>> items_;
  Revision revision_{};
};

}  // namespace embla
