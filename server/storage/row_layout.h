// Layout of a slice's rows in memory, on the host and on a GPU alike, and their initial values.
//
// Layout: weights are one arena, row stride padded to 16 bytes, so that narrow rows do not straddle
// cache lines more than they must and kernels load 16 bytes at once. Row scalars of the state are a
// second arena (4 bytes per slot) and its element arrays a third (all arrays of a slot side by
// side). State is never inside the weight rows: lookups would read it for nothing.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "core/plan/plan.h"
#include "core/plan/table_spec.h"
#include "kernels/initialize.h"
#include "kernels/optimizer_step.h"
#include "server/storage/row_store.h"

namespace embla {

// In bytes.
struct RowLayout {
  std::size_t weight_stride = 0;
  std::size_t weights = 0;
  std::size_t row_state = 0;
  std::size_t element_state = 0;
  std::size_t id_map = 0;  // ZCH tables only: the map's owner allocates it, the budget has it here.
  std::size_t total() const { return weights + row_state + element_state + id_map; }
};
RowLayout LayoutOf(const TableSpec& spec, const Slice& slice);

// The rows of `slice` in arenas of that layout.
struct RowArenas {
  void* weights = nullptr;
  void* row_state = nullptr;
  void* element_state = nullptr;
};
kernels::StepRows RowsIn(const RowArenas& arenas, const TableSpec& spec, const Slice& slice);

// The weights of some of their columns. Requires: the rows have those columns.
kernels::MutableRows ColumnsOf(const kernels::StepRows& rows, ColumnRange columns);

// ResourceExhausted: more rows than slots have numbers.
absl::Status CheckRowCount(const TableSpec& spec, const Slice& slice);

kernels::InitParameters InitParametersOf(const TableSpec& spec);

// RowStore::GatherInitial, computed on the host.
void GatherInitialRows(const kernels::InitParameters& init, DType dtype, std::span<const RowId> ids,
                       ColumnRange columns, const kernels::Output& out);

}  // namespace embla
