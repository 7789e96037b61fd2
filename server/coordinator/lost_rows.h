// The rows that are lost with a node: those that no other node has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/plan/plan.h"

namespace embla {

struct LostRows {
  std::string table;
  std::uint64_t units = 0;
  std::uint64_t rows = 0;   // A row that is cut by columns counts once.
  std::uint64_t bytes = 0;  // Weights and optimizer state, of all replica groups.
  bool operator==(const LostRows&) const = default;
};

// By table; tables that lose nothing are left out. A data_parallel table loses rows only with its
// last copy.
std::vector<LostRows> LostWith(const Plan& plan, NodeId node);

// FailedPrecondition lists what is lost, unless that is nothing, or `lose_rows` is said.
absl::Status CheckLoss(const Plan& plan, const NodeSpec& node, bool lose_rows);

}  // namespace embla
