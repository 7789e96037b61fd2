#include "server/storage/row_layout.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/plan/zch_memory.h"
#include "kernels/convert.h"
#include "server/optimizer/optimizer.h"

namespace embla {
namespace {

constexpr std::size_t kWeightAlignment = 16;

std::size_t WeightStride(DType dtype, std::uint32_t columns) {
  const std::size_t bytes = std::size_t{ElementBytes(dtype)} * columns;
  return (bytes + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
}

}  // namespace

RowLayout LayoutOf(const TableSpec& spec, const Slice& slice) {
  const auto rule = Optimizer(spec).step_parameters().rule;
  const auto rows = static_cast<std::size_t>(slice.rows());
  RowLayout layout;
  layout.weight_stride = WeightStride(spec.dtype, slice.columns());
  layout.weights = rows * layout.weight_stride;
  layout.row_state = rows * kernels::RowStateFloats(rule) * sizeof(float);
  layout.element_state = rows * kernels::ElementStateArrays(rule) * slice.columns() * sizeof(float);
  if (spec.zch.has_value()) {
    layout.id_map = rows * static_cast<std::size_t>(IdMapBytesPerSlot(*spec.zch));
  }
  return layout;
}

kernels::StepRows RowsIn(const RowArenas& arenas, const TableSpec& spec, const Slice& slice) {
  kernels::StepRows rows;
  rows.weights = {arenas.weights, WeightStride(spec.dtype, slice.columns()), slice.columns(),
                  static_cast<kernels::Element>(spec.dtype)};
  rows.row_state = static_cast<float*>(arenas.row_state);
  rows.element_state = static_cast<float*>(arenas.element_state);
  rows.first_row = slice.row_begin;
  rows.column_begin = slice.column_begin;
  rows.dim = spec.dim;
  return rows;
}

kernels::MutableRows ColumnsOf(const kernels::StepRows& rows, ColumnRange columns) {
  const kernels::MutableRows& weights = rows.weights;
  EMBLA_CHECK(rows.column_begin <= columns.begin && columns.begin <= columns.end &&
              columns.end <= rows.column_begin + weights.columns);
  const std::size_t skipped = kernels::RowBytes(weights.element, columns.begin - rows.column_begin);
  return {static_cast<std::byte*>(weights.base) + skipped, weights.stride_bytes, columns.size(),
          weights.element};
}

absl::Status CheckRowCount(const TableSpec& spec, const Slice& slice) {
  EMBLA_CHECK(slice.rows() > 0 && slice.columns() > 0 && slice.column_end <= spec.dim);
  if (slice.rows() < std::int64_t{kernels::kNoSlot}) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("table ", spec.name, ": a slice of ",
                                                   slice.rows(), " rows; one device holds at most ",
                                                   kernels::kNoSlot - 1, " rows of a table"));
}

kernels::InitParameters InitParametersOf(const TableSpec& spec) {
  const InitSpec& init = spec.init;
  switch (init.kind) {
    case InitKind::kDefault: {
      const auto bound = static_cast<float>(std::sqrt(1.0 / static_cast<double>(spec.rows)));
      return {kernels::InitRule::kUniform, -bound, bound, spec.seed};
    }
    case InitKind::kConstant:
      return {kernels::InitRule::kConstant, init.a, init.a, spec.seed};
    case InitKind::kUniform:
      return {kernels::InitRule::kUniform, init.a, init.b, spec.seed};
    case InitKind::kNormal:
      return {kernels::InitRule::kNormal, init.a, init.b, spec.seed};
  }
  EMBLA_CHECK(false);
}

void GatherInitialRows(const kernels::InitParameters& init, DType dtype, std::span<const RowId> ids,
                       ColumnRange columns, const kernels::Output& out) {
  const std::size_t stride = WeightStride(dtype, columns.size());
  std::vector<std::byte> initial(stride);
  const kernels::MutableRows row{initial.data(), stride, columns.size(),
                                 static_cast<kernels::Element>(dtype)};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    kernels::Initialize(init, {row, ToInt(ids[i]), columns.begin}, 0, 1);
    kernels::Convert(
        {initial.data(), stride, row.element},
        {static_cast<std::byte*>(out.base) + i * out.stride_bytes, out.stride_bytes, out.element},
        1, columns.size());
  }
}

}  // namespace embla
