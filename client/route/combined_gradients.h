// All gradients of one table in one update, as one row per distinct id: clamped, weighted and
// summed in fp32 in the canonical order of kernels/combine.h, which is also the servers' order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/route/feature.h"
#include "client/route/table_route.h"
#include "core/base/buffer.h"
#include "kernels/combine.h"

namespace embla::client {

// Positions [first, second) in CombinedGradients::ids().
using IdRange = std::pair<std::uint32_t, std::uint32_t>;

class CombinedGradients {
 public:
  struct Source {
    const Feature* feature = nullptr;  // Not owned; outlives this object.
    const float* gradients = nullptr;  // Not owned; outlives this object.
  };

  // `sources` are all features of the table, in the call's order.
  // InvalidArgument: a gradient is NaN or infinite, which the clamp would hide from the server, or
  // which one server would refuse while others count what it should have stepped with.
  static absl::StatusOr<CombinedGradients> Create(std::span<const Source> sources,
                                                  const TableSpec& spec, BufferPool& pool);

  std::span<const std::int64_t> ids() const { return grouping_.ids; }  // Ascending.

  // Writes the columns [column_begin, column_end) of the rows of `range` to `out`, packed, as
  // `wire_dtype`.
  void Write(IdRange range, std::uint32_t column_begin, std::uint32_t column_end, DType wire_dtype,
             std::byte* out) const;

  // Computes row_sum_squares(): of the rows as their receivers read them, when they are sent as
  // `wire_dtype` in the column ranges of `blocks`.
  void ComputeRowSumSquares(const std::vector<RouteBlock>& blocks, DType wire_dtype);
  // Empty, or one per id.
  std::span<const float> row_sum_squares() const { return row_sum_squares_; }

 private:
  CombinedGradients(const TableSpec& spec, BufferPool& pool)
      : dim_(spec.dim), clip_(spec.optimizer.gradient_clip), pool_(&pool) {}

  void Concatenate(std::span<const Source> sources);
  void Sum(IdRange range, std::uint32_t column_begin, std::uint32_t column_end,
           std::span<float> sums) const;

  std::uint32_t dim_;
  float clip_;
  BufferPool* pool_;  // Not owned; outlives this object.
  const float* gradients_ = nullptr;
  std::size_t stride_ = 0;             // Floats from one gradient row to the next.
  Buffer gradients_copy_;              // Gradients of several features, one after the other.
  std::vector<std::uint32_t> row_of_;  // Per position; empty: row p.
  std::vector<float> factors_;         // Per position; empty: 1.
  kernels::Grouping grouping_;
  std::vector<float> row_sum_squares_;
};

}  // namespace embla::client
