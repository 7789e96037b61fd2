// Gather and Scatter. Rows of tables that lie at multiples of 16 bytes are read in words, their
// padding included; all others take convert.cu's way, element by element.
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/lookup.h"
#include "kernels/cuda/move_any.h"
#include "kernels/cuda/move_rows.cuh"

namespace embla::kernels::cuda {
namespace {

template <Element kElement>
int GatherWords(const Move& move, Element out, StreamHandle stream) {
  return LaunchMoveTo<kElement, kPerLane<kElement>, true>(out, move, stream);
}

}  // namespace

int GatherAsync(const Rows& rows, const std::uint32_t* slots, std::size_t count, const Output& out,
                StreamHandle stream) {
  if (rows.element == Element::kInt8Rowwise) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  const Move move{static_cast<const std::byte*>(rows.base),
                  rows.stride_bytes,
                  static_cast<std::byte*>(out.base),
                  out.stride_bytes,
                  count,
                  rows.columns,
                  slots,
                  SlotsAre::kSources};
  if (!MovesInWords<Element::kFloat32, 4>(rows.base, rows.stride_bytes)) {
    return MoveAnyAsync(rows.element, out.element, move, stream);
  }
  switch (rows.element) {
    case Element::kFloat16:
      return GatherWords<Element::kFloat16>(move, out.element, stream);
    case Element::kBFloat16:
      return GatherWords<Element::kBFloat16>(move, out.element, stream);
    default:
      return GatherWords<Element::kFloat32>(move, out.element, stream);
  }
}

int ScatterAsync(const MutableRows& rows, const std::uint32_t* slots, std::size_t count,
                 const Input& in, StreamHandle stream) {
  if (rows.element == Element::kInt8Rowwise || in.element != rows.element) {
    return cudaErrorInvalidValue;
  }
  if (count == 0) return cudaSuccess;
  const Move move{static_cast<const std::byte*>(in.base),
                  in.stride_bytes,
                  static_cast<std::byte*>(rows.base),
                  rows.stride_bytes,
                  count,
                  rows.columns,
                  slots,
                  SlotsAre::kTargets};
  return MoveAnyAsync(in.element, rows.element, move, stream);
}

}  // namespace embla::kernels::cuda
