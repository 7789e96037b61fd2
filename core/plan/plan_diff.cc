#include "core/plan/plan_diff.h"

#include <algorithm>
#include <utility>

namespace embla {
namespace {

std::int64_t BytesOf(const TablePlan& table) {
  std::int64_t bytes = 0;
  for (const std::vector<Slice>& replica : table.replicas) {
    for (const Slice& slice : replica) bytes += SliceBytes(table.spec, slice);
  }
  return bytes;
}

void AppendMoves(const TableSpec& spec, const std::vector<Slice>& before, const Slice& now,
                 std::vector<SliceMove>* moves) {
  for (const Slice& was : before) {
    Slice common = now;
    common.row_begin = std::max(was.row_begin, now.row_begin);
    common.row_end = std::min(was.row_end, now.row_end);
    common.column_begin = std::max(was.column_begin, now.column_begin);
    common.column_end = std::min(was.column_end, now.column_end);
    const bool overlap =
        common.row_begin < common.row_end && common.column_begin < common.column_end;
    if (!overlap || was.device == now.device) continue;
    moves->push_back({common.row_begin, common.row_end, common.column_begin, common.column_end,
                      was.device, now.device, SliceBytes(spec, common)});
  }
}

void DiffNodes(const Plan& before, const Plan& after, PlanDiff* diff) {
  for (const NodeSpec& node : after.nodes()) {
    const NodeSpec* const old = before.FindNode(node.id);
    if (old == nullptr) {
      diff->nodes_added.push_back(node.name);
    } else if (*old != node) {
      diff->nodes_changed.push_back(node.name);
    }
  }
  for (const NodeSpec& node : before.nodes()) {
    if (after.FindNode(node.id) == nullptr) diff->nodes_removed.push_back(node.name);
  }
}

}  // namespace

std::int64_t PlanDiff::moved_bytes() const {
  std::int64_t bytes = 0;
  for (const TableDiff& table : tables) {
    if (table.kind == TableDiff::Kind::kMoved) bytes += table.bytes;
  }
  return bytes;
}

bool PlanDiff::empty() const {
  return nodes_added.empty() && nodes_removed.empty() && nodes_changed.empty() && tables.empty();
}

std::vector<SliceMove> MovesBetween(const TablePlan& before, const TablePlan& after) {
  std::vector<SliceMove> moves;
  const std::size_t copies = std::min(before.replicas.size(), after.replicas.size());
  for (std::size_t copy = 0; copy < copies; ++copy) {
    for (const Slice& slice : after.replicas[copy]) {
      AppendMoves(after.spec, before.replicas[copy], slice, &moves);
    }
  }
  return moves;
}

PlanDiff DiffPlans(const Plan& before, const Plan& after) {
  PlanDiff diff;
  DiffNodes(before, after, &diff);
  using Kind = TableDiff::Kind;
  for (const TablePlan& table : after.tables()) {
    const TablePlan* const old = before.FindTable(table.spec.id);
    if (old == nullptr) {
      diff.tables.push_back({Kind::kCreated, table.spec.name, BytesOf(table), {}});
      continue;
    }
    if (old->spec != table.spec || old->aside != table.aside) {
      diff.tables.push_back({Kind::kSpecChanged, table.spec.name, 0, {}});
    }
    if (old->steps != table.steps) {
      diff.tables.push_back({Kind::kMembersChanged, table.spec.name, 0, {}});
    }
    if (old->replicas == table.replicas) continue;
    TableDiff moved{Kind::kMoved, table.spec.name, 0, MovesBetween(*old, table)};
    for (const SliceMove& move : moved.moves) moved.bytes += move.bytes;
    diff.tables.push_back(std::move(moved));
  }
  for (const TablePlan& table : before.tables()) {
    if (after.FindTable(table.spec.id) != nullptr) continue;
    diff.tables.push_back({Kind::kDropped, table.spec.name, BytesOf(table), {}});
  }
  std::stable_sort(diff.tables.begin(), diff.tables.end(),
                   [](const TableDiff& a, const TableDiff& b) { return a.name < b.name; });
  return diff;
}

}  // namespace embla
