#include "client/route/combined_gradients.h"

#include <algorithm>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/convert.h"

namespace embla::client {
namespace {

// Rows that are converted or squared at once: they stay in the cache.
constexpr std::uint32_t kChunkRows = 128;

// Appends the gradient row and the factor of every id of `feature`, whose rows begin at first_row.
void AppendPositions(const Feature& feature, std::uint32_t first_row,
                     std::vector<std::uint32_t>& row_of, std::vector<float>& factors) {
  const std::size_t first = row_of.size();
  row_of.resize(first + feature.ids.size());
  factors.resize(row_of.size(), 1.0f);
  const std::span<std::uint32_t> rows = std::span(row_of).subspan(first);
  const std::span<float> scales = std::span(factors).subspan(first);
  if (feature.pooling == Pooling::kNone) {
    std::iota(rows.begin(), rows.end(), first_row);
    return;
  }
  kernels::ExpandBags(feature.lengths, rows,
                      feature.pooling == Pooling::kMean ? scales : std::span<float>());
  for (std::uint32_t& row : rows) row += first_row;
  if (!feature.weights.empty()) {
    std::copy(feature.weights.begin(), feature.weights.end(), scales.begin());
  }
}

absl::Status CheckFinite(std::span<const CombinedGradients::Source> sources,
                         const TableSpec& spec) {
  for (const CombinedGradients::Source& source : sources) {
    const kernels::Input rows{source.gradients, source.feature->stride * sizeof(float)};
    if (!kernels::HasNonFinite(rows, source.feature->rows(), spec.dim)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("table ", spec.name, ": a gradient is NaN or infinite"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CombinedGradients> CombinedGradients::Create(std::span<const Source> sources,
                                                            const TableSpec& spec,
                                                            BufferPool& pool) {
  CombinedGradients combined(spec, pool);
  const bool is_checked = spec.optimizer.gradient_clip > 0 || spec.sync.has_value();
  if (is_checked && spec.nan_policy == NanPolicy::kReject) {
    if (absl::Status status = CheckFinite(sources, spec); !status.ok()) return status;
  }
  std::uint64_t ids = 0, rows = 0;
  for (const Source& source : sources) {
    ids += source.feature->ids.size();
    rows += source.feature->rows();
  }
  if (std::max(ids, rows) >= kernels::kNoSlot) {
    return absl::InvalidArgumentError(absl::StrCat("table ", spec.name, ": ", ids, " ids and ",
                                                   rows,
                                                   " gradient rows are too many: split the batch"));
  }
  const Feature& first = *sources.front().feature;
  if (sources.size() == 1) {
    combined.gradients_ = sources.front().gradients;
    combined.stride_ = first.stride;
    if (first.pooling != Pooling::kNone) {
      AppendPositions(first, 0, combined.row_of_, combined.factors_);
      const bool plain = first.pooling == Pooling::kSum && first.weights.empty();
      if (plain) combined.factors_.clear();
    }
    kernels::GroupIds(first.ids, combined.grouping_);
  } else {
    combined.Concatenate(sources);
  }
  return combined;
}

void CombinedGradients::Concatenate(std::span<const Source> sources) {
  std::size_t rows = 0;
  for (const Source& source : sources) rows += source.feature->rows();
  gradients_copy_ = pool_->Take(rows * dim_ * sizeof(float));
  float* next = gradients_copy_.MutableAs<float>().data();
  gradients_ = next;
  stride_ = dim_;
  std::vector<std::int64_t> ids;
  std::uint32_t first_row = 0;
  for (const Source& source : sources) {
    const Feature& feature = *source.feature;
    const std::size_t row_bytes = dim_ * sizeof(float);
    kernels::Convert({source.gradients, feature.stride * sizeof(float)},
                     {next, row_bytes, kernels::Element::kFloat32}, feature.rows(), dim_);
    next += feature.rows() * dim_;
    ids.insert(ids.end(), feature.ids.begin(), feature.ids.end());
    AppendPositions(feature, first_row, row_of_, factors_);
    first_row += static_cast<std::uint32_t>(feature.rows());
  }
  kernels::GroupIds(ids, grouping_);
}

void CombinedGradients::Sum(IdRange range, std::uint32_t column_begin, std::uint32_t column_end,
                            std::span<float> sums) const {
  kernels::Gradients gradients;
  gradients.rows = {gradients_ + column_begin, stride_ * sizeof(float), kernels::Element::kFloat32};
  gradients.columns = column_end - column_begin;
  gradients.row_of = row_of_.empty() ? nullptr : row_of_.data();
  gradients.factors = factors_.empty() ? nullptr : factors_.data();
  gradients.clip = clip_;
  kernels::SumSegments(grouping_, gradients, range.first, range.second, sums, gradients.columns);
}

void CombinedGradients::Write(IdRange range, std::uint32_t column_begin, std::uint32_t column_end,
                              DType wire_dtype, std::byte* out) const {
  const std::uint32_t columns = column_end - column_begin;
  if (wire_dtype == DType::kFloat32) {
    const std::size_t floats = std::size_t{range.second - range.first} * columns;
    Sum(range, column_begin, column_end, {reinterpret_cast<float*>(out), floats});
    return;
  }
  std::vector<float> sums(std::size_t{kChunkRows} * columns);
  const std::size_t row_bytes = RowBytes(wire_dtype, columns);
  for (std::uint32_t first = range.first; first < range.second; first += kChunkRows) {
    const std::uint32_t last = std::min(first + kChunkRows, range.second);
    Sum({first, last}, column_begin, column_end, sums);
    kernels::Convert({sums.data(), columns * sizeof(float)},
                     {out, row_bytes, ElementOf(wire_dtype)}, last - first, columns);
    out += row_bytes * (last - first);
  }
}

void CombinedGradients::ComputeRowSumSquares(const std::vector<RouteBlock>& blocks,
                                             DType wire_dtype) {
  const auto count = static_cast<std::uint32_t>(ids().size());
  row_sum_squares_.resize(count);
  const std::size_t stride = dim_ * sizeof(float);
  std::vector<float> rows(std::size_t{kChunkRows} * dim_);
  std::vector<std::byte> wire(kChunkRows * RowBytes(wire_dtype, dim_) +
                              kChunkRows * kernels::kInt8RowHeaderBytes);
  for (std::uint32_t first = 0; first < count; first += kChunkRows) {
    const std::uint32_t last = std::min(first + kChunkRows, count);
    for (const RouteBlock& block : blocks) {
      const std::uint32_t columns = block.column_end() - block.column_begin();
      Write({first, last}, block.column_begin(), block.column_end(), wire_dtype, wire.data());
      kernels::Convert({wire.data(), RowBytes(wire_dtype, columns), ElementOf(wire_dtype)},
                       {rows.data() + block.column_begin(), stride, kernels::Element::kFloat32},
                       last - first, columns);
    }
    kernels::RowSumSquares({rows.data(), stride, dim_, kernels::Element::kFloat32},
                           std::span(row_sum_squares_).subspan(first, last - first));
  }
}

}  // namespace embla::client
