// The units of a table with synchronous steps: which node has which of them, as contributions claim
// them, and which rows and columns they are (docs/synchronous_steps.md).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/plan/plan.h"
#include "core/plan/unit_set.h"

namespace embla::client {

class StepUnits {
 public:
  // Rows of one column cut.
  struct CutRows {
    std::uint32_t column_begin = 0;
    std::uint32_t column_end = 0;
    std::vector<std::pair<std::int64_t, std::int64_t>> rows;  // [begin, end), ascending.

    bool Has(std::int64_t row) const;
  };

  // `slices` are those of the table. `spec` is not owned; outlives this object.
  StepUnits(const TableSpec& spec, std::span<const Slice> slices);

  // By node, its slices; each unit once.
  const std::map<NodeId, UnitSet>& by_node() const { return by_node_; }

  // The runs of `units`, by column cut, ascending. Units that the table does not have are left out.
  std::vector<CutRows> RowsOf(const UnitSet& units) const;

 private:
  struct Cut {
    std::uint32_t column_begin = 0;
    std::uint32_t column_end = 0;
    std::uint32_t granule = 0;  // The cut's first, its name in a UnitSet::Run.
  };

  const TableSpec* spec_;  // Not owned.
  std::vector<Cut> cuts_;
  std::map<NodeId, UnitSet> by_node_;
};

}  // namespace embla::client
