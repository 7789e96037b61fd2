// Keeps the places of units that nodes have named when they were asked for a unit that they do not
// have: hints, which are newer than the plan in hand (docs/protocol.md, "Hints").
//
// The hint of the highest epoch about a unit counts, in whatever order hints come. So the place of
// a unit changes only as often as the unit has changed nodes, and nodes that name each other,
// because one of them is behind, send nobody in a circle.
//
// Tests: unit_hints_test.cc, and for what calls make of hints client/refused_units_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/plan/plan.h"

namespace embla::client {

// Units of one table: a rectangle.
struct UnitHint {
  TableId table{};
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  std::uint32_t column_begin = 0;
  std::uint32_t column_end = 0;
  NodeId owner{};
  std::uint64_t epoch = 0;
};

// A value.
class UnitHints {
 public:
  // Bound on the memory of a table's hints, and on the time that a new one costs.
  static constexpr std::size_t kRunsMax = 16'384;

  // Takes in what `hints` say of units of `table` of which nothing as new is known. False: that is
  // nothing, or there is no room. Units that the table cannot have are passed over.
  bool Include(const TablePlan& table, std::span<const UnitHint> hints);

  bool empty() const { return cuts_.empty(); }
  // `slices`, the table's by its plan, with the owners that hints name.
  std::vector<Slice> Applied(std::span<const Slice> slices) const;

 private:
  struct Run {
    std::int64_t row_begin = 0;
    std::int64_t row_end = 0;
    NodeId owner{};
    std::uint64_t epoch = 0;
  };
  using Runs = std::vector<Run>;  // Ascending, disjoint.
  struct Cut {
    std::uint32_t column_begin = 0;
    std::uint32_t column_end = 0;
    Runs runs;
  };

  static bool Include(const Run& hint, Runs& runs);
  const Cut* CutAt(std::uint32_t column_begin) const;

  std::vector<Cut> cuts_;  // The plan's column cuts, or none.
};

}  // namespace embla::client
