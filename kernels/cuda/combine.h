// The CUDA twin of kernels/combine.h: a batch's positions by slot, and one sum per slot, added in
// the order of kernels/combine.h. Contract of all verbs: launch.h.
//
//   GroupAsync        slots of a batch -> positions sorted by slot, stably
//   SegmentsAsync     -> the unique slots, and where their positions begin
//   SumSegmentsAsync  -> one fp32 row per unique slot
// optimizer_step.h's UpdateAsync needs the first only, and stores no sums.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/row_kernels.h"

namespace embla::kernels::cuda {

// For gradients of pooled outputs: position p of [0, position_count) gets its bag's number, and its
// factor 1 / length unless inverse_lengths is null.
//
// Requires: offsets[0] == 0, offsets[bag_count] == position_count.
int ExpandBagsAsync(const std::uint32_t* offsets, std::size_t bag_count, std::size_t position_count,
                    std::uint32_t* bag_of, float* inverse_lengths, StreamHandle stream);

// A batch's positions by slot: equal slots are neighbours, in arrival order. It points into the
// workspace it was made in. Positions of kNoSlot come last, with slot_limit for a slot.
struct DeviceGrouping {
  const std::uint32_t* slots = nullptr;      // Ascending.
  const std::uint32_t* positions = nullptr;  // Positions of slots[i] in the batch.
  std::size_t count = 0;                     // Known to the host: of the batch's positions.
  std::uint32_t slot_limit = 0;
};

// *bytes (host) = what GroupAsync needs for `count` positions. Needs a device, as sorting does.
int GroupBytes(std::size_t count, std::size_t* bytes);

// Sorts by slot; only as many bits as slot_limit has cost time. `grouping` is host memory, filled
// before the call returns.
//
// Requires: count < 2^31; every slot is below slot_limit or kNoSlot; slot_limit < kNoSlot.
int GroupAsync(const std::uint32_t* slots, std::size_t count, std::uint32_t slot_limit,
               Workspace workspace, DeviceGrouping* grouping, StreamHandle stream);

// *count += how many slots the grouping has, without kNoSlot.
int CountSlotsAsync(const DeviceGrouping& grouping, std::uint64_t* count, StreamHandle stream);

// The segments of a grouping, in the caller's memory.
struct DeviceSegments {
  std::uint32_t* slots = nullptr;    // Room for grouping.count: unique, ascending, no kNoSlot.
  std::uint32_t* offsets = nullptr;  // Room for grouping.count + 2: segment i is positions
                                     // [offsets[i], offsets[i + 1]).
  std::uint32_t* count = nullptr;    // How many there are: known to the device only.
};
int SegmentsBytes(std::size_t count, std::size_t* bytes);
int SegmentsAsync(const DeviceGrouping& grouping, Workspace workspace,
                  const DeviceSegments& segments, StreamHandle stream);

// The gradient of position p, as kernels::Gradients.
struct DeviceGradients {
  Input rows;
  std::uint32_t columns = 0;
  const std::uint32_t* row_of = nullptr;  // Null: row p.
  const float* factors = nullptr;         // Null: 1.
  float clip = 0.0f;                      // 0: not clipped.
};

// Host arithmetic: what SumSegmentsAsync and UpdateAsync need for partial sums of long segments,
// about 3 % of the gradients' size in fp32.
std::size_t PartialSumsBytes(std::size_t count, std::uint32_t columns);

// sums + i * stride = the sum of segment i, for all segments. stride >= columns, in floats.
int SumSegmentsAsync(const DeviceGrouping& grouping, const DeviceSegments& segments,
                     const DeviceGradients& gradients, Workspace partial_sums, float* sums,
                     std::size_t stride, StreamHandle stream);

// kernels::RowSumSquares of `count` rows. cudaErrorInvalidValue unless rows.element == kFloat32.
int RowSumSquaresAsync(const Rows& rows, std::size_t count, float* out, StreamHandle stream);

}  // namespace embla::kernels::cuda
