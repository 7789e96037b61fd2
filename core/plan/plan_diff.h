// The differences between two plans of one cluster, and the rectangles of rows that have moved.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan/plan.h"

namespace embla {

// A rectangle that `from` has in the old plan and `to` in the new one.
struct SliceMove {
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  std::uint32_t column_begin = 0;
  std::uint32_t column_end = 0;
  DeviceId from{};
  DeviceId to{};
  std::int64_t bytes = 0;  // Weights and optimizer state together.
};

struct TableDiff {
  enum class Kind : std::uint8_t { kCreated, kDropped, kMoved, kSpecChanged, kMembersChanged };

  Kind kind = Kind::kMoved;
  std::string name;
  std::int64_t bytes = 0;        // kCreated, kDropped: all of them; kMoved: those that moved.
  std::vector<SliceMove> moves;  // kMoved: in the order of the new plan's slices.
};

struct PlanDiff {
  std::vector<std::string> nodes_added, nodes_removed, nodes_changed;
  std::vector<TableDiff> tables;  // By name; a table is in it once per kind of change.

  std::int64_t moved_bytes() const;
  bool empty() const;
};

// A table is recognised by its id: dropped and created under one name is two tables. Copies are
// compared one by one; copies that one plan does not have are not moves.
PlanDiff DiffPlans(const Plan& before, const Plan& after);

// The rectangles of `after` that are on another device in `before`, copy by copy.
std::vector<SliceMove> MovesBetween(const TablePlan& before, const TablePlan& after);

}  // namespace embla
