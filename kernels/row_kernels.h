// Arithmetic on raw rows: the contract that kernels/cpu, kernels/cpu/reference and kernels/cuda
// all fulfil. Plain types, no project dependency. This header has the words; the verbs are in
//   lookup.h          Gather, Pool, DivideRows
//   convert.h         Convert, HasNonFinite
//   combine.h         GroupIds, ExpandBags, SumSegments, RowSumSquares
//   optimizer_step.h  Step
//   initialize.h      Initialize
//
// Numerics, the same for every target and thread count:
//   - sums are fp32, in the order stated at each verb; nothing is fused unless it says fma
//   - fp16 and bf16 weights are widened exactly; narrowing is round-to-nearest-even or stochastic
//   - RowSumSquares and every other reduction over columns use 16 lanes: lane l adds the columns
//     l, l+16, l+32, ... in order, then lanes are added as a tree (l += l+8, l+4, l+2, l+1)
//   - duplicates of a row are summed in arrival order in pieces of kCombinePiece, and the pieces
//     are added in order
//   - every sum starts from +0, so a sum of one -0 is +0
// A NaN stays a NaN; its sign and payload are not part of the contract.
#pragma once

#include <cstddef>
#include <cstdint>

namespace embla::kernels {

// kInt8Rowwise is a wire format only: fp32 scale, fp32 bias, then one code per column.
enum class Element : std::uint8_t { kFloat32 = 1, kFloat16 = 2, kBFloat16 = 3, kInt8Rowwise = 4 };

inline constexpr std::uint32_t kNoSlot = 0xffffffff;  // Reads as zeros, is never written.
inline constexpr std::size_t kCombinePiece = 256;
inline constexpr std::size_t kInt8RowHeaderBytes = 8;

constexpr std::size_t ElementBytes(Element element) {
  switch (element) {
    case Element::kFloat32:
      return 4;
    case Element::kFloat16:
    case Element::kBFloat16:
      return 2;
    case Element::kInt8Rowwise:
      return 1;
  }
  return 0;
}

// Bytes of a packed row, the int8 header included.
constexpr std::size_t RowBytes(Element element, std::uint32_t columns) {
  return ElementBytes(element) * columns +
         (element == Element::kInt8Rowwise ? kInt8RowHeaderBytes : 0);
}

// Rows in memory: row s starts at base + s * stride_bytes and has `columns` elements.
struct Rows {
  const void* base = nullptr;
  std::size_t stride_bytes = 0;
  std::uint32_t columns = 0;
  Element element = Element::kFloat32;  // Never kInt8Rowwise.
};

// The same, writable. base and stride are multiples of the element's size.
struct MutableRows {
  void* base = nullptr;
  std::size_t stride_bytes = 0;
  std::uint32_t columns = 0;
  Element element = Element::kFloat32;  // Never kInt8Rowwise.
};

// How far ahead of the row in hand rows are prefetched. Changes no result. The best distance
// depends on the machine: server/storage/prefetch_tuner.h finds it.
struct PrefetchTuning {
  static constexpr std::uint32_t kAuto = 0xffffffff;  // By row size.
  std::uint32_t prefetch_rows = kAuto;                // 0 turns prefetching off.
};

// Rows of input, in order: row i at base + i * stride_bytes. Any alignment, any element.
struct Input {
  const void* base = nullptr;
  std::size_t stride_bytes = 0;
  Element element = Element::kFloat32;
};

// Rows of output: row i at base + i * stride_bytes. Any alignment. kInt8Rowwise: fp32 scale, fp32
// bias, then `columns` codes; value = code * scale + bias.
struct Output {
  void* base = nullptr;
  std::size_t stride_bytes = 0;
  Element element = Element::kFloat32;
};

}  // namespace embla::kernels
