// Sums of a segment's gradients in the order of kernels/combine.h: pieces of kCombinePiece
// positions from +0, in arrival order; then the pieces from +0, in order.
//
// A segment of one piece is summed where it is needed. The pieces of a longer one are summed side
// by side by SumPiecesKernel, each to a row of partial sums that follows from where the piece
// begins: of the pieces of long segments that begin in one window of kCombinePiece sorted
// positions, one at most is a segment's first, and one at most is not. So two rows per window are
// enough, nothing is counted, and nothing depends on timing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/combine.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/group.cuh"
#include "kernels/cuda/units.cuh"

namespace embla::kernels::cuda {

inline constexpr std::uint32_t kPiece = kCombinePiece;

// A batch's gradients by slot, and the partial sums of its long segments.
struct SumSource {
  DeviceGrouping grouping;
  DeviceGradients gradients;
  bool words = false;  // Units of kPer gradients can be loaded in words.
  float* partials = nullptr;
  unsigned partial_stride = 0;  // In floats; a multiple of 8.
};

// Places [begin, end) of the sorted order, whose positions in the batch are grouping.positions.
struct Segment {
  std::uint32_t begin;
  std::uint32_t end;
};

__device__ __forceinline__ float* PartialOf(const SumSource& source, std::uint32_t segment_begin,
                                            std::uint32_t piece_begin) {
  const std::size_t row = piece_begin / kPiece * 2u + (piece_begin == segment_begin ? 1u : 0u);
  return source.partials + row * source.partial_stride;
}

// NaN stays NaN: comparisons with it are false.
__device__ __forceinline__ float Clipped(float v, float clip) {
  if (clip > 0.0f && v > clip) return clip;
  if (clip > 0.0f && v < -clip) return -clip;
  return v;
}

// Where the gradients of kCount positions are.
template <int kCount>
struct GradientPlaces {
  std::uint32_t rows[kCount];
  float factors[kCount];
};

// Looks up the first `count` of `positions`: of every position first one thing, then the other, so
// that none waits for another.
template <int kCount>
__device__ __forceinline__ GradientPlaces<kCount> PlacesOf(const DeviceGradients& gradients,
                                                           const std::uint32_t (&positions)[kCount],
                                                           unsigned count) {
  GradientPlaces<kCount> places;
#pragma unroll
  for (int u = 0; u < kCount; ++u) {
    places.rows[u] = positions[u];
    places.factors[u] = 1.0f;
  }
  if (gradients.factors != nullptr) {
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      if (u < count) places.factors[u] = LoadConstant<float>(gradients.factors + positions[u]);
    }
  }
  if (gradients.row_of != nullptr) {
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      if (u >= count) continue;
      places.rows[u] = LoadConstant<std::uint32_t>(gradients.row_of + positions[u]);
    }
  }
  return places;
}

// sum += the gradients at the first `count` of the places, in order, all of which are on their way
// at once.
template <Element kWire, int kPer, int kCount, bool kVector>
__device__ __forceinline__ void AddGradients(const DeviceGradients& gradients,
                                             const GradientPlaces<kCount>& places, unsigned count,
                                             unsigned column, float (&sum)[kPer]) {
  const bool plain = gradients.factors == nullptr && !(gradients.clip > 0.0f);
  Unit<kWire, kPer> units[kCount];
#pragma unroll
  for (int u = 0; u < kCount; ++u) {
    if (u >= count) continue;
    const std::byte* const row = static_cast<const std::byte*>(gradients.rows.base) +
                                 places.rows[u] * gradients.rows.stride_bytes;
    units[u] = LoadUnit<kWire, kPer, kVector>(row, column, gradients.columns);
  }
#pragma unroll
  for (int u = 0; u < kCount; ++u) {
    if (u >= count) continue;
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      const float v = units[u].Value(j);
      sum[j] = sum[j] + (plain ? v : Clipped(v, gradients.clip) * places.factors[u]);
    }
  }
}

// sum += the gradients of a piece, kInFlight at a time.
template <Element kWire, int kPer, int kInFlight, bool kVector>
__device__ __forceinline__ void AddPiece(const SumSource& source, const Segment& piece,
                                         unsigned column, float (&sum)[kPer]) {
  for (std::uint32_t i = piece.begin; i < piece.end; i += kInFlight) {
    const unsigned count = piece.end - i;
    std::uint32_t positions[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (u >= count) continue;
      positions[u] = LoadConstant<std::uint32_t>(source.grouping.positions + i + u);
    }
    AddGradients<kWire, kPer, kInFlight, kVector>(
        source.gradients, PlacesOf(source.gradients, positions, count), count, column, sum);
  }
}

template <Element kWire, int kPer, int kUnits>
__device__ __forceinline__ void AddPieceOf(const SumSource& source, const Segment& piece,
                                           const GradientPlaces<1>& first, unsigned column,
                                           float (&sum)[kPer]) {
  if (source.words) {
    constexpr int kInFlight = kUnitBytes < kWire, kPer >> 16 ? kUnits / 2 : kUnits;
    if (kUnits == 4 && piece.end - piece.begin == 1) {  // Most of them.
      AddGradients<kWire, kPer, 1, true>(source.gradients, first, 1, column, sum);
    } else {
      AddPiece<kWire, kPer, kInFlight, true>(source, piece, column, sum);
    }
  } else {
    AddPiece<kWire, kPer, 1, false>(source, piece, column, sum);
  }
}

// sum, which is +0, becomes the sum of one piece. kUnits: of 16 bytes, in flight; 4 of them where
// many pieces have one gradient, which is at `first`.
template <int kUnits, int kPer>
__device__ __forceinline__ void SumPiece(const SumSource& source, const Segment& piece,
                                         const GradientPlaces<1>& first, unsigned column,
                                         float (&sum)[kPer]) {
  switch (source.gradients.rows.element) {
    case Element::kFloat32:
      return AddPieceOf<Element::kFloat32, kPer, kUnits>(source, piece, first, column, sum);
    case Element::kFloat16:
      return AddPieceOf<Element::kFloat16, kPer, kUnits>(source, piece, first, column, sum);
    case Element::kBFloat16:
      return AddPieceOf<Element::kBFloat16, kPer, kUnits>(source, piece, first, column, sum);
    case Element::kInt8Rowwise:
      return AddPieceOf<Element::kInt8Rowwise, kPer, kUnits>(source, piece, first, column, sum);
  }
}

// sum += the partial sums of a long segment, in order, kInFlight at a time: the last one again
// where there are fewer, so that no load depends on a condition.
template <int kPer>
__device__ __forceinline__ void AddPartials(const SumSource& source, const Segment& segment,
                                            unsigned column, float (&sum)[kPer]) {
  constexpr unsigned kInFlight = 16 / kPer;
  const std::uint32_t last = segment.end - 1 - (segment.end - 1 - segment.begin) % kPiece;
#pragma unroll 1
  for (std::uint32_t i = segment.begin; i <= last; i += kInFlight * kPiece) {
    Unit<Element::kFloat32, kPer> units[kInFlight];
#pragma unroll
    for (unsigned u = 0; u < kInFlight; ++u) {
      const std::uint32_t piece = i + u * kPiece < last ? i + u * kPiece : last;
      const float* const partial = PartialOf(source, segment.begin, piece) + column;
      units[u] = LoadUnit<Element::kFloat32, kPer, true>(
          reinterpret_cast<const std::byte*>(partial), 0, kPer);
    }
#pragma unroll
    for (unsigned u = 0; u < kInFlight; ++u) {
      if (i + u * kPiece > last) continue;
#pragma unroll
      for (int j = 0; j < kPer; ++j) sum[j] = sum[j] + units[u].Value(j);
    }
  }
}

// sum = the segment's sum of the columns from `column` on; 0 past the row's end. `first` is where
// the segment's first gradient is.
//
// Requires: column < source.gradients.columns.
template <int kPer>
__device__ __forceinline__ void SumSegment(const SumSource& source, const Segment& segment,
                                           const GradientPlaces<1>& first, unsigned column,
                                           float (&sum)[kPer]) {
#pragma unroll
  for (int j = 0; j < kPer; ++j) sum[j] = 0.0f;
  if (segment.end - segment.begin <= kPiece) {
    SumPiece<4>(source, segment, first, column, sum);
  } else {
    AddPartials(source, segment, column, sum);
  }
  if (column + kPer <= source.gradients.columns) return;
    // Past the row's end, a clipped or padded unit may hold anything.
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    if (column + j >= source.gradients.columns) sum[j] = 0.0f;
  }
}

// combine.cu. The source for units of `per` columns (4 or 8); cudaErrorInvalidValue when the
// workspace is too small.
int MakeSumSource(const DeviceGrouping& grouping, const DeviceGradients& gradients,
                  Workspace partial_sums, int per, SumSource* source);
// Fills the partial sums of a source for units of `per` columns.
int SumPiecesAsync(const SumSource& source, int per, StreamHandle stream);

}  // namespace embla::kernels::cuda
