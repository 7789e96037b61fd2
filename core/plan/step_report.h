// A node's word to the coordinator on a table with synchronous steps (docs/synchronous_steps.md).
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/ids.h"

namespace embla {

struct StepReport {
  TableId table{};
  std::uint64_t change = 0;        // The last change of members that the node has heard of, synced.
  std::uint64_t first_unmade = 0;  // The first step that no unit has ever made on this node.
  // Ranks for whose contributions to `step` others have waited for the table's step_timeout; none:
  // nobody has.
  std::uint64_t step = 0;
  std::vector<Rank> lacks = {};

  bool operator==(const StepReport&) const = default;
};

}  // namespace embla
