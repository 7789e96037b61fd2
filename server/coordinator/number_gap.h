// Numbers that the store never gave out and never will: nodes have seen them in a history of the
// cluster that the store, restored from an older copy, does not know; or a node that was not heard
// of might have. A node's plans and ids from a gap are examined before the node gets a plan
// (coordinator_restore.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/plan/json_fields.h"

namespace embla {

// All ranges without their ends; empty where both are the same.
struct NumberGap {
  PlanVersion version_begin{};
  PlanVersion version_end{};
  TableId table_begin{};
  TableId table_end{};
  NodeId node_begin{};
  NodeId node_end{};
  // The newest plan of the gap that is merged into the store: tables of the gap that it does not
  // have are known to be dropped. 0: none.
  PlanVersion merged{};
  // Several gaps and what lies between them: plans of the store's own look like forgotten ones, so
  // only tables are kept, and nothing is taken over.
  bool is_joined = false;
  bool operator==(const NumberGap&) const = default;

  bool Has(PlanVersion version) const { return version_begin <= version && version < version_end; }
  bool Has(TableId table) const { return table_begin <= table && table < table_end; }
  bool Has(NodeId node) const { return node_begin <= node && node < node_end; }
};

inline constexpr std::size_t kGapsMax = 64;

// Adds a newer gap. Beyond kGapsMax the two oldest become one.
void AddGap(const NumberGap& gap, std::vector<NumberGap>* gaps);

Json GapsToJson(const std::vector<NumberGap>& gaps);
absl::StatusOr<std::vector<NumberGap>> GapsFromJson(const Json& json);

}  // namespace embla
