// Maps the rows and columns of a table to nodes: the plan's slices with a node's devices taken
// together, and what hints say that is newer. Made once per table and change of its plan or hints;
// routing a batch only reads it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "client/route/step_units.h"
#include "client/route/unit_hints.h"
#include "core/base/ids.h"
#include "core/plan/id_rows.h"
#include "core/plan/plan.h"

namespace embla::client {

inline constexpr NodeId kNoNode{0xffffffff};

// The rows of one column block.
class RouteBlock {
 public:
  // `owners[i]` has the rows [row_borders[i], row_borders[i + 1]).
  RouteBlock(std::uint32_t column_begin, std::uint32_t column_end,
             std::vector<std::int64_t> row_borders, std::vector<NodeId> owners,
             const IdRows& id_rows);

  std::uint32_t column_begin() const { return column_begin_; }
  std::uint32_t column_end() const { return column_end_; }
  // Every node of the block, ascending.
  const std::vector<NodeId>& nodes() const { return nodes_; }

  // Position in nodes() of the node to ask for `id`. Ids outside the table belong to the owner
  // of row 0, who answers them as the table's bounds mode says.
  std::uint32_t OwnerOf(std::int64_t id) const;

  // How many of the rows [row_begin, row_end) `node` has.
  std::int64_t RowsOn(NodeId node, std::int64_t row_begin, std::int64_t row_end) const;

  // Whether every row has the same owner as in `other`.
  bool SameRows(const RouteBlock& other) const;
  void ExtendTo(std::uint32_t column_end) { column_end_ = column_end; }

 private:
  std::uint32_t column_begin_;
  std::uint32_t column_end_;
  std::vector<std::int64_t> row_borders_;
  std::vector<NodeId> owners_;          // Per interval of rows.
  std::vector<NodeId> nodes_;           // The distinct owners.
  std::vector<std::uint32_t> node_of_;  // Interval -> position in nodes_.
  IdRows id_rows_;
};

class TableRoute {
 public:
  explicit TableRoute(TablePtr table, UnitHints hints = {});

  const TablePtr& table() const { return table_; }
  const UnitHints& hints() const { return hints_; }
  const TableSpec& spec() const { return table_->spec; }
  std::size_t replica_count() const { return replicas_.size(); }
  // Ascending by column; they cover all columns.
  const std::vector<RouteBlock>& blocks(std::size_t replica) const { return replicas_[replica]; }
  // The tiling that orders updates.
  const std::vector<RouteBlock>& primary() const { return replicas_.front(); }
  // Whether the primary copy of a row is on several nodes.
  bool columns_cut() const { return replicas_.front().size() > 1; }
  // Null unless the table has synchronous steps.
  const StepUnits* step_units() const { return step_units_.has_value() ? &*step_units_ : nullptr; }

  // Whether all rows of the hint go to `node`. Requires: there is one copy, or there are groups.
  bool SendsTo(NodeId node, const UnitHint& hint) const;

  // The copy that a session reads: always the same one, so that a trainer reads its own writes in
  // order, unless it has rows on `avoid`: then the primary, or else any, that has none.
  std::size_t ReplicaFor(SessionId session, NodeId avoid) const;

 private:
  TablePtr table_;
  UnitHints hints_;
  std::vector<std::vector<RouteBlock>> replicas_;
  std::optional<StepUnits> step_units_;
};

// The routes of all tables of a plan, which it keeps alive. Immutable.
class Routes {
 public:
  // Shares the routes of tables that `before` has from the same plan of the table.
  explicit Routes(PlanPtr plan, const Routes* before = nullptr);
  // `before` and `hints`, which `node` gave under `its_plan`. Null: they change nothing. Hints that
  // name nodes that are not in the plan, or are about tables with several copies, do not; nor do
  // those about rows that `before` does not send to `node`, which may know less of them.
  static std::shared_ptr<const Routes> Following(const Routes& before,
                                                 std::span<const UnitHint> hints, NodeId node,
                                                 PlanVersion its_plan);

  const Plan& plan() const { return *plan_; }
  const PlanPtr& plan_ptr() const { return plan_; }
  // Null when the plan has no such table.
  const TableRoute* Find(std::string_view table) const;
  const TableRoute* Find(TableId table) const;
  // Number of times that hints have changed the routes of the plan.
  std::uint64_t hints() const { return hints_; }
  // The oldest plan that the routes may go by. Where a unit was at a node's word, it was when that
  // node went by the plan that it named: so a hint counts as a plan of that version.
  PlanVersion routed_since() const { return routed_since_; }
  // NotFound; says so when a table of the name is kept aside.
  absl::Status NoSuchTable(std::string_view table) const;

 private:
  PlanPtr plan_;
  std::uint64_t hints_ = 0;
  PlanVersion routed_since_{};
  std::vector<std::shared_ptr<const TableRoute>> tables_;  // In the order of plan_->tables().
};

using RoutesPtr = std::shared_ptr<const Routes>;

}  // namespace embla::client
