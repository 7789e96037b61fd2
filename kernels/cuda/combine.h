// The CUDA twin of kernels/combine.h: a batch's positions by slot, for optimizer_step.h's
// UpdateAsync, which sums each slot's gradients in the order of kernels/combine.h and stores no
// sums. Contract of all verbs: launch.h.
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

// The gradient of position p, as kernels::Gradients.
struct DeviceGradients {
  Input rows;
  std::uint32_t columns = 0;
  const std::uint32_t* row_of = nullptr;  // Null: row p.
  const float* factors = nullptr;         // Null: 1.
  float clip = 0.0f;                      // 0: not clipped.
};

// Host arithmetic: what UpdateAsync needs for partial sums of long segments,
// about 3 % of the gradients' size in fp32.
std::size_t PartialSumsBytes(std::size_t count, std::uint32_t columns);

}  // namespace embla::kernels::cuda
