// Convert. Whole units at aligned addresses move in words, the others element by
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

}  // namespace embla::kernels::cuda
