// A unit: the kPer consecutive columns of one row that a lane has in hand, as they are in memory.
//
// Whole units of rows at multiples of 16 bytes move as 16-byte words (smaller ones where a unit
// is smaller); all others move element by element, whatever their address.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/row_kernels.h"

namespace embla::kernels::cuda {

// Columns of a unit of weights: 16 bytes.
template <Element kElement>
inline constexpr int kPerLane = static_cast<int>(16 / ElementBytes(kElement));

template <Element kElement, int kPer>
inline constexpr int kUnitBytes = static_cast<int>(ElementBytes(kElement)) * kPer;

// Alignment of an address for a unit to be moved in words.
template <Element kElement, int kPer>
inline constexpr int kUnitAlignment =
    kUnitBytes<kElement, kPer> < 16 ? kUnitBytes<kElement, kPer> : 16;

template <int kBytes>
struct Words {
  static_assert(kBytes % 4 == 0);
  std::uint32_t word[kBytes / 4] = {};
};

template <int kBytes, bool kConstant>
__device__ __forceinline__ Words<kBytes> LoadWords(const std::byte* p) {
  Words<kBytes> words;
  if constexpr (kBytes == 4) {
    words.word[0] = kConstant ? LoadConstant<std::uint32_t>(p) : Load<std::uint32_t>(p);
  } else if constexpr (kBytes == 8) {
    const uint2 v = kConstant ? LoadConstant<uint2>(p) : Load<uint2>(p);
    words.word[0] = v.x;
    words.word[1] = v.y;
  } else {
#pragma unroll
    for (int at = 0; at < kBytes; at += 16) {
      const uint4 v = kConstant ? LoadConstant<uint4>(p + at) : Load<uint4>(p + at);
      words.word[at / 4] = v.x;
      words.word[at / 4 + 1] = v.y;
      words.word[at / 4 + 2] = v.z;
      words.word[at / 4 + 3] = v.w;
    }
  }
  return words;
}

template <int kBytes>
__device__ __forceinline__ void StoreWords(std::byte* p, const Words<kBytes>& words) {
  if constexpr (kBytes == 4) {
    Store<std::uint32_t>(p, words.word[0]);
  } else if constexpr (kBytes == 8) {
    Store(p, uint2{words.word[0], words.word[1]});
  } else {
#pragma unroll
    for (int at = 0; at < kBytes; at += 16) {
      const std::uint32_t* const w = words.word + at / 4;
      StoreStreaming(p + at, uint4{w[0], w[1], w[2], w[3]});
    }
  }
}

__device__ __forceinline__ bool IsAligned(const void* p, unsigned alignment) {
  return reinterpret_cast<std::uintptr_t>(p) % alignment == 0;
}

// One element's bits, from and to any address.
template <int kBytes>
__device__ __forceinline__ std::uint32_t LoadBits(const std::byte* p) {
  if constexpr (kBytes == 4) {
    if (IsAligned(p, 4)) return Load<std::uint32_t>(p);
  } else if constexpr (kBytes == 2) {
    if (IsAligned(p, 2)) return Load<unsigned short>(p);
  }
  std::uint32_t bits = 0;
  for (int i = 0; i < kBytes; ++i) bits |= std::uint32_t{Load<unsigned char>(p + i)} << (8 * i);
  return bits;
}
template <int kBytes>
__device__ __forceinline__ void StoreBits(std::byte* p, std::uint32_t bits) {
  if constexpr (kBytes == 4) {
    if (IsAligned(p, 4)) return Store(p, bits);
  } else if constexpr (kBytes == 2) {
    if (IsAligned(p, 2)) return Store(p, static_cast<unsigned short>(bits));
  }
  for (int i = 0; i < kBytes; ++i) Store(p + i, static_cast<unsigned char>(bits >> (8 * i)));
}

template <Element kElement>
__device__ __forceinline__ std::size_t HeaderBytes() {
  return kElement == Element::kInt8Rowwise ? kInt8RowHeaderBytes : 0;
}

template <Element kElement, int kPer>
struct Unit {
  static constexpr int kElementBytes = static_cast<int>(ElementBytes(kElement));
  static constexpr int kBytes = kUnitBytes<kElement, kPer>;
  Words<kBytes> words;
  float scale = 0.0f;  // Scale of kInt8Rowwise.
  float bias = 0.0f;

  __device__ __forceinline__ std::uint32_t Bits(int j) const {
    if constexpr (kElementBytes == 4) return words.word[j];
    const std::uint32_t word = words.word[j * kElementBytes / 4];
    const int shift = j * kElementBytes % 4 * 8;
    return word >> shift & ((1u << (8 * kElementBytes % 32)) - 1);
  }
  // Into an element that is zero.
  __device__ __forceinline__ void Put(int j, std::uint32_t bits) {
    words.word[j * kElementBytes / 4] |= bits << (j * kElementBytes % 4 * 8);
  }
  __device__ __forceinline__ float Value(int j) const {
    if constexpr (kElement == Element::kInt8Rowwise) {
      return static_cast<float>(Bits(j)) * scale + bias;
    } else {
      return ToFloat<kElement>(Bits(j));
    }
  }
};

// The unit at `column` of the row at `row`. kVector: the unit is whole, or the row's memory is,
// and its address is a multiple of kUnitAlignment. Columns from `columns` on are zero without
// kVector, and unknown with it.
template <Element kElement, int kPer, bool kVector, bool kConstant = true>
__device__ __forceinline__ Unit<kElement, kPer> LoadUnit(const std::byte* row, unsigned column,
                                                         unsigned columns) {
  constexpr int kBytes = static_cast<int>(ElementBytes(kElement));
  Unit<kElement, kPer> unit;
  if constexpr (kElement == Element::kInt8Rowwise) {
    unit.scale = FloatOf(LoadBits<4>(row));
    unit.bias = FloatOf(LoadBits<4>(row + 4));
  }
  const std::byte* const p = row + HeaderBytes<kElement>() + std::size_t{column} * kBytes;
  if constexpr (kVector) {
    unit.words = LoadWords<kUnitBytes<kElement, kPer>, kConstant>(p);
  } else {
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      if (column + j < columns) unit.Put(j, LoadBits<kBytes>(p + j * kBytes));
    }
  }
  return unit;
}

template <Element kElement, int kPer>
__device__ __forceinline__ void StoreUnit(std::byte* row, unsigned column, unsigned columns,
                                          const Unit<kElement, kPer>& unit) {
  constexpr int kBytes = static_cast<int>(ElementBytes(kElement));
  std::byte* const p = row + HeaderBytes<kElement>() + std::size_t{column} * kBytes;
  if (column + kPer <= columns && IsAligned(p, kUnitAlignment<kElement, kPer>)) {
    return StoreWords(p, unit.words);
  }
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    if (column + j < columns) StoreBits<kBytes>(p + j * kBytes, unit.Bits(j));
  }
}

// kPer floats from `p` on, of which `count` exist; the others are 0.
template <int kPer>
__device__ __forceinline__ void LoadFloats(const float* p, unsigned count, float (&values)[kPer]) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(p);
  if (count >= kPer && IsAligned(p, 16)) {
    const auto unit = LoadUnit<Element::kFloat32, kPer, true, false>(bytes, 0, kPer);
#pragma unroll
    for (int j = 0; j < kPer; ++j) values[j] = unit.Value(j);
    return;
  }
#pragma unroll
  for (int j = 0; j < kPer; ++j) values[j] = 0.0f;
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    if (static_cast<unsigned>(j) < count) values[j] = FloatOf(LoadBits<4>(bytes + j * 4));
  }
}
template <int kPer>
__device__ __forceinline__ void StoreFloats(float* p, unsigned count, const float (&values)[kPer]) {
  Unit<Element::kFloat32, kPer> unit;
#pragma unroll
  for (int j = 0; j < kPer; ++j) unit.Put(j, BitsOf(values[j]));
  StoreUnit(reinterpret_cast<std::byte*>(p), 0, count, unit);
}

// Whether every whole unit of every row can be loaded in words; and, unless the rows' padding may
// be read, whether all units are whole.
template <Element kElement, int kPer>
bool MovesInWords(const void* base, std::size_t stride_bytes) {
  const std::size_t header = kElement == Element::kInt8Rowwise ? kInt8RowHeaderBytes : 0;
  return ((reinterpret_cast<std::uintptr_t>(base) + header) | stride_bytes) %
             kUnitAlignment<kElement, kPer> ==
         0;
}

}  // namespace embla::kernels::cuda
