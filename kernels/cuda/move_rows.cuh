// Rows to rows, from any format to any other: what Gather, Scatter and Convert have in common.
//
// A lane takes a unit of kRowsInFlight rows: all slots are loaded before the first row, and all
// rows are on their way before the first store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/group.cuh"
#include "kernels/cuda/units.cuh"
#include "kernels/row_kernels.h"

namespace embla::kernels::cuda {

inline constexpr int kRowsInFlight = 4;

// Row i goes to row i, or from row slots[i] (kNoSlot: zeros), or to row slots[i] (kNoSlot: not).
enum class SlotsAre : std::uint8_t { kNothing, kSources, kTargets };

struct Move {
  const std::byte* in = nullptr;
  std::size_t in_stride = 0;
  std::byte* out = nullptr;
  std::size_t out_stride = 0;
  std::size_t count = 0;
  std::uint32_t columns = 0;
  const std::uint32_t* slots = nullptr;
  SlotsAre slots_are = SlotsAre::kNothing;
};

// Source and destination of row i, whose slot is `slot` where there are slots; null for zeros, and
// for no destination.
__device__ __forceinline__ const std::byte* SourceOf(const Move& move, std::size_t i,
                                                     std::uint32_t slot) {
  if (move.slots_are != SlotsAre::kSources) return move.in + i * move.in_stride;
  return slot == kNoSlot ? nullptr : move.in + slot * move.in_stride;
}
__device__ __forceinline__ std::byte* TargetOf(const Move& move, std::size_t i,
                                               std::uint32_t slot) {
  if (move.slots_are != SlotsAre::kTargets) return move.out + i * move.out_stride;
  return slot == kNoSlot ? nullptr : move.out + slot * move.out_stride;
}

// The slots of kRows rows from `i` on, `step` apart, all loaded before one is looked at. The first
// row's stands for those past the end.
template <int kRows>
__device__ __forceinline__ void LoadSlots(const Move& move, std::size_t i, std::size_t step,
                                          std::uint32_t (&slots)[kRows]) {
  if (move.slots_are == SlotsAre::kNothing) return;
#pragma unroll
  for (int u = 0; u < kRows; ++u) {
    const std::size_t row = i + u * step;
    slots[u] = LoadConstant<std::uint32_t>(move.slots + (row < move.count ? row : i));
  }
}

// The same bits where the formats are the same, else to nearest even.
template <Element kIn, Element kOut, int kPer>
__device__ __forceinline__ Unit<kOut, kPer> ConvertUnit(const Unit<kIn, kPer>& unit) {
  if constexpr (kIn == kOut) {
    return unit;
  } else {
    Unit<kOut, kPer> converted;
#pragma unroll
    for (int j = 0; j < kPer; ++j) converted.Put(j, ToNearest<kOut>(unit.Value(j)));
    return converted;
  }
}

// kOut is kInt8Rowwise only when kIn is: other rows need a range first.
template <Element kIn, Element kOut, int kPer, bool kVector>
__global__ void __launch_bounds__(kThreads) MoveKernel(Move move, RowShape shape) {
  const Group group = GroupOfThread(shape.lanes_log2);
  const unsigned column = ((blockIdx.y << shape.lanes_log2) + group.lane) * kPer;
  const bool has_header = kOut == Element::kInt8Rowwise && column == 0;
  if (column >= move.columns && !has_header) return;
  for (std::size_t i = group.first; i < move.count; i += kRowsInFlight * group.count) {
    std::uint32_t slots[kRowsInFlight] = {};
    LoadSlots(move, i, group.count, slots);
    Unit<kIn, kPer> units[kRowsInFlight];
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      const std::size_t row = i + u * group.count;
      const std::byte* const source = row < move.count ? SourceOf(move, row, slots[u]) : nullptr;
      if (source != nullptr) {
        units[u] = LoadUnit<kIn, kPer, kVector>(source, column, move.columns);
      }
    }
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      const std::size_t row = i + u * group.count;
      std::byte* const target = row < move.count ? TargetOf(move, row, slots[u]) : nullptr;
      if (target == nullptr) continue;
      if (has_header) {
        StoreBits<4>(target, BitsOf(units[u].scale));
        StoreBits<4>(target + 4, BitsOf(units[u].bias));
      }
      StoreUnit(target, column, move.columns, ConvertUnit<kIn, kOut>(units[u]));
    }
  }
}

// The range of a row's values; magnitudes from 0x7f800000 on are no finite numbers.
struct RowRange {
  float lowest = std::numeric_limits<float>::infinity();
  float highest = -std::numeric_limits<float>::infinity();
  std::uint32_t magnitude = 0;
};

__device__ __forceinline__ void Widen(RowRange& range, const RowRange& other) {
  range.lowest = fminf(range.lowest, other.lowest);
  range.highest = fmaxf(range.highest, other.highest);
  range.magnitude = range.magnitude > other.magnitude ? range.magnitude : other.magnitude;
}

// The scale and bias of kernels/convert.h.
__device__ __forceinline__ void QuantizationOf(const RowRange& range, float* scale, float* bias) {
  const bool empty = range.lowest > range.highest && range.magnitude == 0;
  *bias = empty ? 0.0f : range.lowest + 0.0f;  // -0 becomes +0.
  const float width = empty ? 0.0f : range.highest - *bias;
  *scale = width / 255.0f;
  if (range.magnitude >= 0x7f800000u || width > std::numeric_limits<float>::max()) {
    *scale = *bias = std::numeric_limits<float>::quiet_NaN();
  } else if (*scale < std::numeric_limits<float>::min()) {
    *scale = 0.0f;
  }
}

// Adding 2^23 rounds to an integer, nearest even, which then is the low byte.
__device__ __forceinline__ std::uint32_t CodeOf(float value, float bias, float inverse_scale) {
  const float steps = (value - bias) * inverse_scale;
  return BitsOf(fminf(fmaxf(steps, 0.0f), 255.0f) + 8388608.0f) & 255u;
}

template <Element kIn, int kPer, bool kVector>
__device__ __forceinline__ RowRange RangeOfRow(const Group& group, const std::byte* source,
                                               unsigned columns) {
  RowRange range;
  for (unsigned c = group.lane * kPer; c < columns; c += group.lanes * kPer) {
    const auto unit = LoadUnit<kIn, kPer, kVector>(source, c, columns);
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      const float v = unit.Value(j);
      if (c + j < columns) Widen(range, {v, v, BitsOf(v) & 0x7fffffffu});
    }
  }
  for (unsigned half = group.lanes / 2; half > 0; half /= 2) {
    const unsigned other = group.lane ^ half;
    Widen(range, {FromLane(group, range.lowest, other), FromLane(group, range.highest, other),
                  FromLane(group, range.magnitude, other)});
  }
  return range;
}

// To kInt8Rowwise: a group reads its row twice, the second time from the caches.
template <Element kIn, int kPer, bool kVector>
__global__ void __launch_bounds__(kThreads) QuantizeKernel(Move move, RowShape shape) {
  const Group group = GroupOfThread(shape.lanes_log2);
  for (std::size_t i = group.first; i < move.count; i += group.count) {
    std::uint32_t slots[1] = {};
    LoadSlots(move, i, group.count, slots);
    const std::byte* const source = SourceOf(move, i, slots[0]);
    std::byte* const target = TargetOf(move, i, slots[0]);
    float scale = 0.0f;
    float bias = 0.0f;
    if (source != nullptr) {
      const auto range = RangeOfRow<kIn, kPer, kVector>(group, source, move.columns);
      QuantizationOf(range, &scale, &bias);
    }
    if (group.lane == 0) {
      StoreBits<4>(target, BitsOf(scale));
      StoreBits<4>(target + 4, BitsOf(bias));
    }
    for (unsigned c = group.lane * kPer; c < move.columns; c += group.lanes * kPer) {
      Unit<Element::kInt8Rowwise, kPer> codes;
      if (scale > 0.0f) {
        const auto unit = LoadUnit<kIn, kPer, kVector>(source, c, move.columns);
#pragma unroll
        for (int j = 0; j < kPer; ++j) codes.Put(j, CodeOf(unit.Value(j), bias, 1.0f / scale));
      }
      StoreUnit(target, c, move.columns, codes);
    }
  }
}

template <Element kIn, Element kOut, int kPer, bool kVector>
int LaunchMove(const Move& move, StreamHandle stream) {
  const std::size_t units = (move.columns + kPer - 1) / kPer;
  if constexpr (kOut == Element::kInt8Rowwise && kIn != kOut) {
    const RowShape shape = ShapeByGroup(units);
    return Launch(QuantizeKernel<kIn, kPer, kVector>, GridOfGroups(move.count, shape), stream, move,
                  shape);
  } else {
    const RowShape shape = ShapeByChunks(units);
    return Launch(MoveKernel<kIn, kOut, kPer, kVector>,
                  WithChunks(GridOfGroups(move.count, shape, kRowsInFlight), shape), stream, move,
                  shape);
  }
}

template <Element kIn, int kPer, bool kVector>
int LaunchMoveTo(Element out, const Move& move, StreamHandle stream) {
  switch (out) {
    case Element::kFloat32:
      return LaunchMove<kIn, Element::kFloat32, kPer, kVector>(move, stream);
    case Element::kFloat16:
      return LaunchMove<kIn, Element::kFloat16, kPer, kVector>(move, stream);
    case Element::kBFloat16:
      return LaunchMove<kIn, Element::kBFloat16, kPer, kVector>(move, stream);
    case Element::kInt8Rowwise:
      return LaunchMove<kIn, Element::kInt8Rowwise, kPer, kVector>(move, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace embla::kernels::cuda
