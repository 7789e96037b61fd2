// Software prefetch of rows that a batch will touch soon.
//
// Everything here must be inlined into the loops that use it: GCC takes a function that only
// prefetches for one without effect and drops the calls to it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hwy/base.h"
#include "hwy/cache_control.h"
#include "kernels/row_kernels.h"

namespace embla::kernels {

// Distances that measured best (docs/benchmarks.md): far enough ahead to cover a miss, but no more
// lines in flight than the line fill buffers hold.
constexpr std::size_t GatherPrefetchRows(std::size_t row_bytes) {
  return row_bytes <= 128 ? 16 : row_bytes <= 512 ? 8 : 4;
}
// Sums of wide rows wait for nothing but memory, which runs ahead by itself.
constexpr std::size_t PoolPrefetchRows(std::size_t row_bytes) { return row_bytes <= 128 ? 32 : 0; }
constexpr std::size_t StepPrefetchRows(std::size_t row_bytes) {
  return row_bytes <= 128 ? 16 : row_bytes <= 512 ? 8 : 4;
}

HWY_INLINE void PrefetchBytes(const void* begin, std::size_t bytes) {
  constexpr std::uintptr_t kLine = 64;
  const auto first = reinterpret_cast<std::uintptr_t>(begin) & ~(kLine - 1);
  const auto end = reinterpret_cast<std::uintptr_t>(begin) + bytes;
  for (std::uintptr_t line = first; line < end; line += kLine) {
    hwy::Prefetch(reinterpret_cast<const char*>(line));
  }
}

// Prefetches the row `distance` entries after the one in hand.
class RowPrefetcher {
 public:
  RowPrefetcher(const void* base, std::size_t stride_bytes, std::size_t row_bytes,
                std::span<const std::uint32_t> slots, std::size_t distance)
      : base_(static_cast<const std::byte*>(base)),
        stride_bytes_(stride_bytes),
        row_bytes_(row_bytes),
        slots_(slots),
        distance_(distance == 0 ? slots.size() : distance) {}

  HWY_INLINE void Ahead(std::size_t i) const {
    if (i + distance_ >= slots_.size()) return;
    const std::uint32_t slot = slots_[i + distance_];
    if (slot != kNoSlot) PrefetchBytes(base_ + slot * stride_bytes_, row_bytes_);
  }

  // The rows that Ahead will not reach because the batch starts with them.
  HWY_INLINE void Start() const {
    if (distance_ >= slots_.size()) return;
    for (std::size_t i = 0; i < distance_; ++i) {
      if (slots_[i] != kNoSlot) PrefetchBytes(base_ + slots_[i] * stride_bytes_, row_bytes_);
    }
  }

 private:
  const std::byte* base_;
  std::size_t stride_bytes_;
  std::size_t row_bytes_;
  std::span<const std::uint32_t> slots_;
  std::size_t distance_;
};

}  // namespace embla::kernels
