// Convert and FindNonFinite. Whole units at aligned addresses move in words, the others element by
// element; which of the two a batch takes is decided once, from its base, stride and columns.
#include "kernels/cuda/convert.h"

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/move_any.h"
#include "kernels/cuda/move_rows.cuh"

namespace embla::kernels::cuda {
namespace {

template <Element kIn>
int MoveFrom(Element out, const Move& move, StreamHandle stream) {
  constexpr int kPer = kIn == Element::kInt8Rowwise ? 4 : kPerLane<kIn>;
  if (move.columns % kPer == 0 && MovesInWords<kIn, kPer>(move.in, move.in_stride)) {
    return LaunchMoveTo<kIn, kPer, true>(out, move, stream);
  }
  return LaunchMoveTo<kIn, kPer, false>(out, move, stream);
}

__device__ __forceinline__ bool IsFinite(float v) {
  return (BitsOf(v) & 0x7f800000u) != 0x7f800000u;
}

template <Element kElement>
__global__ void __launch_bounds__(kThreads)
    FindNonFiniteKernel(Move move, RowShape shape, std::uint32_t* found) {
  constexpr int kPer = 4;
  const Group group = GroupOfThread(shape.lanes_log2);
  const unsigned column = ((blockIdx.y << shape.lanes_log2) + group.lane) * kPer;
  bool bad = false;
  for (std::size_t i = group.first; i < move.count; i += group.count) {
    const std::byte* const row = move.in + i * move.in_stride;
    if constexpr (kElement == Element::kInt8Rowwise) {
      const float scale = FloatOf(LoadBits<4>(row));
      const float bias = FloatOf(LoadBits<4>(row + 4));
      bad = bad || !IsFinite(bias) || !IsFinite(255.0f * scale + bias);
    } else {
      const auto unit = LoadUnit<kElement, kPer, false>(row, column, move.columns);
#pragma unroll
      for (int j = 0; j < kPer; ++j) bad = bad || !IsFinite(unit.Value(j));
    }
  }
  if (bad) atomicOr(found, 1u);
}

template <Element kElement>
int FindIn(const Move& move, std::uint32_t* found, StreamHandle stream) {
  const std::size_t units = kElement == Element::kInt8Rowwise ? 1 : (move.columns + 3) / 4;
  const RowShape shape = ShapeByChunks(units);
  const Grid grid = WithChunks(GridOfGroups(move.count, shape, kRowsInFlight), shape);
  return Launch(FindNonFiniteKernel<kElement>, grid, stream, move, shape, found);
}

}  // namespace

int MoveAnyAsync(Element in, Element out, const Move& move, StreamHandle stream) {
  switch (in) {
    case Element::kFloat32:
      return MoveFrom<Element::kFloat32>(out, move, stream);
    case Element::kFloat16:
      return MoveFrom<Element::kFloat16>(out, move, stream);
    case Element::kBFloat16:
      return MoveFrom<Element::kBFloat16>(out, move, stream);
    case Element::kInt8Rowwise:
      return MoveFrom<Element::kInt8Rowwise>(out, move, stream);
  }
  return cudaErrorInvalidValue;
}

int ConvertAsync(const Input& in, const Output& out, std::size_t row_count, std::uint32_t columns,
                 StreamHandle stream) {
  if (row_count == 0) return cudaSuccess;
  const Move move{static_cast<const std::byte*>(in.base),
                  in.stride_bytes,
                  static_cast<std::byte*>(out.base),
                  out.stride_bytes,
                  row_count,
                  columns};
  return MoveAnyAsync(in.element, out.element, move, stream);
}

int FindNonFiniteAsync(const Input& in, std::size_t row_count, std::uint32_t columns,
                       std::uint32_t* found, StreamHandle stream) {
  if (row_count == 0) return cudaSuccess;
  Move move;
  move.in = static_cast<const std::byte*>(in.base);
  move.in_stride = in.stride_bytes;
  move.count = row_count;
  move.columns = columns;
  switch (in.element) {
    case Element::kFloat32:
      return FindIn<Element::kFloat32>(move, found, stream);
    case Element::kFloat16:
      return FindIn<Element::kFloat16>(move, found, stream);
    case Element::kBFloat16:
      return FindIn<Element::kBFloat16>(move, found, stream);
    case Element::kInt8Rowwise:
      return FindIn<Element::kInt8Rowwise>(move, found, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace embla::kernels::cuda
