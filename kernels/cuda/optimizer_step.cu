// The optimizer's kernels. StepKernel gives a group of lanes each row of a batch whose gradients
// are summed already. UpdateKernel gives a warp a tile of sorted positions: the warp finds where
// segments begin there and how long the last one is, and its groups of lanes sum and step the rows
// whose segments begin in the tile. Tiles are narrow when a batch is small, so that a few hundred
// rows still are work for a few hundred groups.
#include "kernels/cuda/optimizer_step.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/combine.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/group.cuh"
#include "kernels/cuda/step_row.cuh"
#include "kernels/cuda/sums.cuh"
#include "kernels/cuda/workspace.h"

namespace embla::kernels::cuda {
namespace {

// Blocks per multiprocessor: what the registers of a row in flight leave room for. Units of 16-bit
// weights have twice the columns.
template <Element kElement, class Rule>
inline constexpr int kBlocks = kElement == Element::kFloat32 ? (Rule::kArrays < 2 ? 4 : 3)
                               : Rule::kArrays > 0 || Rule::kNeedsSquares ? 2
                                                                          : 3;
// Sums need registers of their own.
template <Element kElement, class Rule>
inline constexpr int kUpdateBlocks = kElement == Element::kFloat32 &&
                                             (Rule::kArrays > 0 || Rule::kNeedsSquares)
                                         ? 3
                                         : kBlocks<kElement, Rule>;

template <Element kElement, class Rule>
__global__ void __launch_bounds__(kThreads, kBlocks<kElement, Rule>)
    StepKernel(StepScalars scalars, StepTarget target, DeviceStepBatch batch, RowShape shape) {
  const Group group = GroupOfThread(shape.lanes_log2);
  const std::size_t count = batch.device_count == nullptr ? batch.count : *batch.device_count;
  const bool given = batch.row_sum_squares != nullptr && scalars.parameters.l2 == 0.0f;
  for (WarpTurns turns(group); turns.first < count; turns.Next()) {
    const std::size_t i = turns.own;
    const unsigned columns = target.rows.weights.columns;
    const auto gradient = [&](unsigned column, float(&g)[kPerLane<kElement>]) {
      const unsigned left = column < columns ? columns - column : 0;
      LoadFloats(batch.gradients + i * batch.stride + column, left, g);
    };
    RowStepper<kElement, Rule> stepper(group, scalars, target,
                                       i < count ? batch.slots[i] : kNoSlot);
    stepper.Step(gradient, given ? batch.row_sum_squares + i : nullptr);
  }
}

// `width` consecutive sorted positions, as a warp sees them.
struct Tile {
  std::uint32_t begin;
  std::uint32_t slot;          // At this lane's place in the sorted order, and
  GradientPlaces<1> gradient;  // where the gradient is.
  unsigned boundaries;    // Lanes where a run of equal slots begins, the end of the batch included.
  unsigned heads;         // The boundaries that begin a segment.
  std::uint32_t run_end;  // End of the tile's last run.
};

// The first position from `from` on whose slot is not `slot`. All lanes of the warp call it.
__device__ __forceinline__ std::uint32_t EndOfRun(const DeviceGrouping& grouping,
                                                  std::uint32_t from, std::uint32_t slot) {
  const auto count = static_cast<std::uint32_t>(grouping.count);
  const unsigned lane = threadIdx.x % kWarp;
  const std::uint32_t near_end = from + 8 * kWarp;
  for (; from < count && from < near_end; from += kWarp) {
    const bool ends = from + lane >= count || grouping.slots[from + lane] != slot;
    const unsigned found = __ballot_sync(kAllLanes, ends);
    if (found != 0) return from + FirstBit(found) - 1;
  }
  // A long run: halve what is left.
  std::uint32_t end = count;
  while (from < end) {
    const std::uint32_t middle = from + (end - from) / 2;
    if (grouping.slots[middle] == slot) {
      from = middle + 1;
    } else {
      end = middle;
    }
  }
  return end;
}

__device__ __forceinline__ Tile ReadTile(const SumSource& source, std::uint32_t begin,
                                         unsigned width) {
  const DeviceGrouping& grouping = source.grouping;
  const unsigned lane = threadIdx.x % kWarp;
  const std::uint32_t i = begin + lane;
  const bool inside = lane < width && i < grouping.count;
  Tile tile;
  tile.begin = begin;
  tile.slot = inside ? LoadConstant<std::uint32_t>(grouping.slots + i) : kNoSlot;
  const std::uint32_t positions[1] = {inside ? LoadConstant<std::uint32_t>(grouping.positions + i)
                                             : 0};
  tile.gradient = PlacesOf(source.gradients, positions, inside ? 1 : 0);
  const bool starts = lane < width && i <= grouping.count &&
                      (i == 0 || i == grouping.count || grouping.slots[i - 1] != tile.slot);
  tile.boundaries = __ballot_sync(kAllLanes, starts);
  tile.heads = __ballot_sync(kAllLanes, starts && inside && tile.slot < grouping.slot_limit);
  const std::uint32_t last_slot = __shfl_sync(kAllLanes, tile.slot, width - 1);
  // A run that does not begin here is another warp's.
  tile.run_end = begin + width;
  if (tile.heads != 0 && last_slot < grouping.slot_limit) {
    tile.run_end = EndOfRun(grouping, begin + width, last_slot);
  }
  return tile;
}

__device__ __forceinline__ Segment SegmentAt(const Tile& tile, unsigned head) {
  const unsigned later = head == kWarp - 1 ? 0 : tile.boundaries >> (head + 1);
  return {tile.begin + head, later == 0 ? tile.run_end : tile.begin + head + FirstBit(later)};
}

// Bits without the lowest `count` ones that are set.
__device__ __forceinline__ unsigned WithoutLowest(unsigned bits, unsigned count) {
#pragma unroll 1
  for (; count != 0; --count) bits &= bits - 1;
  return bits;
}

template <Element kElement, class Rule>
__global__ void __launch_bounds__(kThreads, kUpdateBlocks<kElement, Rule>)
    UpdateKernel(StepScalars scalars, StepTarget target, SumSource source, RowShape shape,
                 unsigned width) {
  const Group group = GroupOfThread(shape.lanes_log2);
  const Group warp = GroupOfThread(5);
  const unsigned groups = kWarp >> shape.lanes_log2;
  const unsigned own = threadIdx.x % kWarp >> shape.lanes_log2;
  const DeviceGrouping& grouping = source.grouping;
  const auto step = static_cast<std::uint32_t>(warp.count) * width;
  for (auto begin = static_cast<std::uint32_t>(warp.first) * width; begin < grouping.count;
       begin += step) {
    const Tile tile = ReadTile(source, begin, width);
    // Groups take heads in turn, side by side: all groups of a warp step a row at once.
    for (unsigned rest = tile.heads; rest != 0; rest = WithoutLowest(rest, groups)) {
      const unsigned own_heads = WithoutLowest(rest, own);
      const unsigned head = own_heads == 0 ? 0 : FirstBit(own_heads) - 1;
      const Segment segment = SegmentAt(tile, head);
      const std::uint32_t slot = __shfl_sync(kAllLanes, tile.slot, static_cast<int>(head));
      const GradientPlaces<1> first{
          {__shfl_sync(kAllLanes, tile.gradient.rows[0], static_cast<int>(head))},
          {__shfl_sync(kAllLanes, tile.gradient.factors[0], static_cast<int>(head))}};
      const auto gradient = [&](unsigned column, float(&g)[kPerLane<kElement>]) {
        SumSegment(source, segment, first, column, g);
      };
      RowStepper<kElement, Rule> stepper(group, scalars, target, own_heads == 0 ? kNoSlot : slot);
      stepper.Step(gradient, nullptr);
    }
  }
}

// Parameters of a launch beside its kernel.
struct StepPlan {
  StepScalars scalars;
  StepTarget target;
  RowShape shape;
};

template <Element kElement>
StepPlan PlanOf(const StepParameters& parameters, const StepRows& rows, std::uint64_t step) {
  constexpr int kPer = kPerLane<kElement>;
  StepPlan plan;
  plan.scalars.parameters = parameters;
  plan.scalars.keep = 1.0f - parameters.learning_rate * parameters.decoupled;
  plan.scalars.batch_key =
      BatchKey(RandomPurpose::kRound, parameters.seed, step, parameters.table_id);
  plan.scalars.step = std::max<std::uint64_t>(step, 1);
  plan.scalars.correction1 = BiasCorrectionOf(parameters.beta1, plan.scalars.step);
  plan.scalars.correction2 = BiasCorrectionOf(parameters.beta2, plan.scalars.step);
  plan.target = {rows, MovesInWords<kElement, kPer>(rows.weights.base, rows.weights.stride_bytes)};
  const unsigned lanes_min = TraitsOf(parameters.rule).needs_row_statistic ? 16 / kPer : 1;
  plan.shape = ShapeByGroup((rows.weights.columns + kPer - 1) / kPer, lanes_min);
  return plan;
}

struct StepLaunch {
  const StepPlan& plan;
  const DeviceStepBatch& batch;
  StreamHandle stream;

  template <Element kElement, class Rule>
  int Run() const {
    return Launch(StepKernel<kElement, Rule>, GridOfGroups(batch.count, plan.shape), stream,
                  plan.scalars, plan.target, batch, plan.shape);
  }
};

struct UpdateLaunch {
  const StepPlan& plan;
  const SumSource& source;
  StreamHandle stream;

  template <Element kElement, class Rule>
  int Run() const {
    const std::size_t count = source.grouping.count;
    unsigned width = kWarp >> plan.shape.lanes_log2;
    while (width < kWarp && count / width > kWarpsWanted) width *= 2;
    const std::size_t tiles = (count + width - 1) / width;
    return Launch(UpdateKernel<kElement, Rule>, GridOfGroups(tiles, {5, 1}), stream, plan.scalars,
                  plan.target, source, plan.shape, width);
  }
};

template <Element kElement>
int StepElements(const StepParameters& parameters, const StepRows& rows,
                 const DeviceStepBatch& batch, StreamHandle stream) {
  const StepPlan plan = PlanOf<kElement>(parameters, rows, batch.step);
  return RunRule<kElement>(parameters.rule, StepLaunch{plan, batch, stream});
}

template <Element kElement>
int UpdateElements(const StepParameters& parameters, const StepRows& rows,
                   const DeviceGrouping& grouping, const DeviceGradients& gradients,
                   std::uint64_t step, Workspace partial_sums, StreamHandle stream) {
  SumSource source;
  int error = MakeSumSource(grouping, gradients, partial_sums, kPerLane<kElement>, &source);
  if (error != cudaSuccess) return error;
  error = SumPiecesAsync(source, kPerLane<kElement>, stream);
  if (error != cudaSuccess) return error;
  const StepPlan plan = PlanOf<kElement>(parameters, rows, step);
  return RunRule<kElement>(parameters.rule, UpdateLaunch{plan, source, stream});
}

}  // namespace

int StepAsync(const StepParameters& parameters, const StepRows& rows, const DeviceStepBatch& batch,
              StreamHandle stream) {
  const bool whole = rows.weights.columns == rows.dim;
  const bool has_squares = batch.row_sum_squares != nullptr && parameters.l2 == 0.0f;
  if (TraitsOf(parameters.rule).needs_row_statistic && !whole && !has_squares) {
    return cudaErrorInvalidValue;
  }
  if (batch.count == 0) return cudaSuccess;
  switch (rows.weights.element) {
    case Element::kFloat32:
      return StepElements<Element::kFloat32>(parameters, rows, batch, stream);
    case Element::kFloat16:
      return StepElements<Element::kFloat16>(parameters, rows, batch, stream);
    case Element::kBFloat16:
      return StepElements<Element::kBFloat16>(parameters, rows, batch, stream);
    case Element::kInt8Rowwise:
      break;
  }
  return cudaErrorInvalidValue;
}

int UpdateAsync(const StepParameters& parameters, const StepRows& rows,
                const DeviceGrouping& grouping, const DeviceGradients& gradients,
                std::uint64_t step, Workspace partial_sums, StreamHandle stream) {
  const bool whole = rows.weights.columns == rows.dim;
  if (gradients.columns != rows.weights.columns ||
      (TraitsOf(parameters.rule).needs_row_statistic && !whole)) {
    return cudaErrorInvalidValue;
  }
  if (grouping.count == 0) return cudaSuccess;
  switch (rows.weights.element) {
    case Element::kFloat32:
      return UpdateElements<Element::kFloat32>(parameters, rows, grouping, gradients, step,
                                               partial_sums, stream);
    case Element::kFloat16:
      return UpdateElements<Element::kFloat16>(parameters, rows, grouping, gradients, step,
                                               partial_sums, stream);
    case Element::kBFloat16:
      return UpdateElements<Element::kBFloat16>(parameters, rows, grouping, gradients, step,
                                                partial_sums, stream);
    case Element::kInt8Rowwise:
      break;
  }
  return cudaErrorInvalidValue;
}

int UpdateBatchBytes(std::size_t count, std::uint32_t columns, std::size_t* bytes) {
  WorkspaceParts parts({});
  parts.Take<std::byte>(PartialSumsBytes(count, columns));
  std::size_t group_bytes = 0;
  const int error = GroupBytes(count, &group_bytes);
  *bytes = parts.used() + group_bytes;
  return error;
}

int UpdateBatchAsync(const StepParameters& parameters, const StepRows& rows,
                     const DeviceUpdateBatch& batch, Workspace workspace, StreamHandle stream) {
  WorkspaceParts parts(workspace);
  const std::size_t partial_bytes = PartialSumsBytes(batch.count, batch.gradients.columns);
  const Workspace partial_sums{parts.Take<std::byte>(partial_bytes), partial_bytes};
  DeviceGrouping grouping;
  int error =
      GroupAsync(batch.slots, batch.count, batch.slot_limit, parts.Rest(), &grouping, stream);
  if (error == cudaSuccess && batch.rows_stepped != nullptr) {
    error = CountSlotsAsync(grouping, batch.rows_stepped, stream);
  }
  if (error != cudaSuccess) return error;
  return UpdateAsync(parameters, rows, grouping, batch.gradients, batch.step, partial_sums, stream);
}

}  // namespace embla::kernels::cuda
