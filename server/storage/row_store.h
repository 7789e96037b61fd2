// The memory of one slice's rows on one device, and the whole-batch operations on it.
//
// A slot is a row's position in the slice: slot s of a dense slice is row row_begin + s. Slots in
// batches are plain std::uint32_t, since kernels and CUDA share them; kernels::kNoSlot reads as a
// row of zeros and adds nothing. Every other slot must be below slots(): the caller has resolved
// ids already, so a bad slot is a bug, not an input error.
//
// Thread safety: none. A device runs one batch at a time on its own thread; a store belongs to
// that thread. (Inside a batch a host store uses its pool's threads.)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/plan/table_spec.h"
#include "kernels/combine.h"
#include "kernels/copy_mean.h"
#include "kernels/lookup.h"
#include "kernels/optimizer_step.h"
#include "kernels/row_kernels.h"

namespace embla {

// Columns of the table, inside the columns of the slice.
struct ColumnRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;  // Exclusive.

  std::uint32_t size() const { return end - begin; }
  bool operator==(const ColumnRange&) const = default;
};

// Rows to step, once each.
struct RowStepBatch {
  std::span<const std::uint32_t> slots;  // Ascending and unique, no kNoSlot.
  // Row i is the summed gradient of slots[i] for all columns of the slice, at
  // gradients[i * stride]. Clipped already.
  std::span<const float> gradients = {};
  std::size_t stride = 0;
  // One per slot: sum of squares of the gradient over all columns of the table. Empty, unless
  // Optimizer::NeedsRowSumSquares of the slice's columns.
  std::span<const float> row_sum_squares = {};
  std::uint64_t step = 0;  // Keys stochastic rounding; Adam's t with BiasCorrection::kStep.
  std::optional<float> learning_rate = {};  // In place of the hyper-parameter.
  // Not empty: one per slot, in place of `gradients`, where the row's gradient is. It is stepped
  // with as the sum of one gradient (kernels::StepBatch::gradient_rows).
  std::span<const float* const> gradient_rows = {};

  // The slots [begin, end), without their sums of squares if there are none.
  RowStepBatch Piece(std::size_t begin, std::size_t end) const {
    RowStepBatch piece = *this;
    piece.slots = slots.subspan(begin, end - begin);
    if (!row_sum_squares.empty())
      piece.row_sum_squares = row_sum_squares.subspan(begin, end - begin);
    if (gradient_rows.empty()) {
      piece.gradients = gradients.subspan(std::min(begin * stride, gradients.size()));
    } else {
      piece.gradient_rows = gradient_rows.subspan(begin, end - begin);
    }
    return piece;
  }
};

// Gradients as they came: any number for a row, in arrival order.
struct GradientBatch {
  std::span<const std::uint32_t> slots;  // By position; kNoSlot: its gradient is dropped.
  // For all columns of the slice; row_of and factors are by position.
  kernels::Gradients gradients;
  std::size_t gradient_rows = 0;  // How many gradients.rows has.
  std::uint64_t step = 0;         // This and the next as in RowStepBatch.
  std::optional<float> learning_rate = {};
  // Not empty: gradients of bags, in place of row_of. Gradient b is that of the next bag_lengths[b]
  // positions, times bag_factors[b] if there are any; then there are no other factors.
  // Requires: more positions than gradients.
  std::span<const std::uint32_t> bag_lengths = {};
  std::span<const float> bag_factors = {};
};

// Rows as they move: packed weights in the table's dtype, and flat fp32 state
// (server/optimizer/optimizer.h) for the columns in question. Bit-exact both ways.
struct RowImages {
  std::span<std::byte> weights;  // RowBytes(dtype, columns) per row.
  std::span<float> state;        // Optimizer::StateFloats(columns) per row.
};
struct ConstRowImages {
  std::span<const std::byte> weights;
  std::span<const float> state;
};

// Copies of a store's rows, and which of them are averaged (kernels/copy_mean.h).
struct RowCopies {
  std::span<const kernels::StepRows> copies;  // Shown by stores of one rectangle and table;
  std::size_t own = 0;                        // this one is the store's.
  std::uint32_t first = 0;                    // Slots [first, first + count).
  std::uint32_t count = 0;
};

class DirtyRows;

// Contents of the rows of a new store.
enum class NewRows : std::uint8_t {
  kInitial,
  kUnset,  // Anything: each is written, or reset, before it is read.
};

class RowStore {
 public:
  virtual ~RowStore() = default;

  // Output row i = columns `columns` of slots[i] (kernels::Gather).
  virtual absl::Status Gather(std::span<const std::uint32_t> slots, ColumnRange columns,
                              const kernels::Output& out) const = 0;

  // Output row b = sum over bag b, fp32 (kernels::Pool).
  virtual absl::Status Pool(const kernels::Bags& bags, ColumnRange columns,
                            const kernels::Output& out) const = 0;

  // Whether the store itself makes what a reply has of the sums of so many bags (PoolToWire). One
  // that does not gives sums.
  virtual bool PoolsToWire(std::size_t /*bags*/) const { return false; }
  // Pool; then sum b is divided by divisors[b] (kernels::DivideRows), if there are any, and
  // converted to the format of `out`.
  virtual absl::Status PoolToWire(const kernels::Bags& /*bags*/,
                                  std::span<const std::uint32_t> /*divisors*/,
                                  ColumnRange /*columns*/, const kernels::Output& /*out*/) const {
    return absl::UnimplementedError("sums are divided and converted by the caller");
  }

  // One optimizer step for each slot of the batch. The result does not depend on thread count,
  // nor on how the table's columns and rows are cut into slices.
  virtual absl::Status Step(const RowStepBatch& batch) = 0;

  // Whether the store itself sums what a batch of so many positions has for each row (Update). One
  // that does not is given sums.
  virtual bool SumsGradients(std::size_t /*positions*/) const { return false; }
  // Makes room for an Update of so many positions and gradients. ResourceExhausted: nothing has
  // changed.
  virtual absl::Status ReserveUpdate(std::size_t /*positions*/,
                                     const kernels::Gradients& /*gradients*/,
                                     std::size_t /*gradient_rows*/) {
    return absl::UnimplementedError("gradients are summed before they come");
  }
  // Step with the sums of kernels/combine.h; how many rows were stepped.
  //
  // Requires: ReserveUpdate; whole rows, if the optimizer has a statistic over them.
  virtual absl::StatusOr<std::size_t> Update(const GradientBatch& /*batch*/) {
    return absl::UnimplementedError("gradients are summed before they come");
  }

  // Makes room for means of `count` rows at a time, and returns where kernels of other GPUs find
  // all of them. Null: that is not on a GPU, or there is no room.
  virtual const kernels::StepRows* ShowRows(std::size_t /*count*/) { return nullptr; }
  // Computes the means of copies, and how far its own weights are from them; changes nothing.
  //
  // Requires: ShowRows was not null, with as many rows; its GPU has access to the copies.
  virtual absl::StatusOr<kernels::Divergence> FindMeans(const RowCopies& /*rows*/) {
    return absl::UnimplementedError("rows are not on a GPU");
  }
  // Makes them the rows. Requires: FindMeans of the same rows was the verb before.
  virtual absl::Status TakeMeans(const RowCopies& /*rows*/) {
    return absl::UnimplementedError("rows are not on a GPU");
  }

  // Hyper-parameters of the steps to come. InvalidArgument when the kind differs.
  virtual absl::Status SetOptimizer(const OptimizerSpec& optimizer, Rounding rounding) = 0;

  // Copies weights and state of slots[i] to row i of `images`.
  virtual absl::Status ReadRows(std::span<const std::uint32_t> slots, ColumnRange columns,
                                const RowImages& images) const = 0;

  // Replaces weights and state of slots[i] by row i of `images`. Row scalars of the state belong to
  // every column: writing some columns of a row sets them for all. slots are unique.
  virtual absl::Status WriteRows(std::span<const std::uint32_t> slots, ColumnRange columns,
                                 const ConstRowImages& images) = 0;

  // Makes slots [first, first + count) what they were at creation: initial weights and state.
  virtual absl::Status ResetRows(std::uint32_t first, std::uint32_t count) = 0;

  // Makes slots[i] the row that `ids[i]` begins with: initial state, and the initial weights of a
  // table's row of that number, which may be any. Requires: equal sizes; slots are unique.
  virtual absl::Status ResetRowsTo(std::span<const std::uint32_t> slots,
                                   std::span<const RowId> ids) = 0;
  // Output row i = columns `columns` of the row that ids[i] begins with; reads no slot.
  virtual absl::Status GatherInitial(std::span<const RowId> ids, ColumnRange columns,
                                     const kernels::Output& out) const = 0;

  // About how many bytes of rows callers should ask for at once who handle them in pieces: what
  // stays in a core's second-level cache, or what hides the latency of a GPU's link.
  virtual std::size_t piece_bytes() const = 0;

  virtual std::uint32_t slots() const = 0;
  virtual ColumnRange columns() const = 0;
  virtual DType dtype() const = 0;
  // Floats of state per row image of `columns` columns.
  virtual std::size_t StateFloats(std::uint32_t columns) const = 0;
  virtual std::size_t memory_bytes() const = 0;

  // The record of which rows the verbs above have changed (tracked_store.h); belongs to the store.
  // Null: this store keeps none.
  virtual DirtyRows* dirty_rows() { return nullptr; }
};

}  // namespace embla
