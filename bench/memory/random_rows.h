// The memory ceilings: what reading, or reading and writing, the same rows in the same order costs
// when nothing else is done. Kernels are divided by the best of these over prefetch distances.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace embla::bench {

// Rows of an array: row s at base + s * stride_bytes. row_bytes is a multiple of 4.
struct RowArray {
  std::byte* base = nullptr;
  std::size_t stride_bytes = 0;
  std::size_t row_bytes = 0;
};

inline constexpr std::size_t kCeilingPrefetchRows[] = {0, 4, 8, 16, 24, 32, 48, 64};

// The XOR of all words of the rows `slots`. `prefetch_rows` rows are prefetched ahead.
std::uint32_t XorRows(const RowArray& rows, std::span<const std::uint32_t> slots,
                      std::size_t prefetch_rows);

// Copies the rows `slots` to `out`, one after the other.
void CopyRows(const RowArray& rows, std::span<const std::uint32_t> slots, std::byte* out,
              std::size_t prefetch_rows);

// Adds 1 to every word of the rows `slots` of each array.
void IncrementRows(std::span<const RowArray> arrays, std::span<const std::uint32_t> slots,
                   std::size_t prefetch_rows);

}  // namespace embla::bench
