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

// Rows ahead without a measurement: far enough to cover a miss, but few enough lines in flight for
// old machines' line fill buffers. Stores find better ones (server/storage/prefetch_tuner.h).
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

// Prefetches the row `distance` entries after the one in hand. kNoSlot is prefetched like any other
// slot: a prefetch never faults.
class RowPrefetcher {
 public:
  RowPrefetcher(const void* base, std::size_t stride_bytes, std::size_t row_bytes,
                std::span<const std::uint32_t> slots, std::size_t distance)
      : base_(static_cast<const std::byte*>(base)),
        stride_bytes_(stride_bytes),
        row_bytes_(row_bytes),
        slots_(slots.data()),
        distance_(std::min(distance, slots.size())),
        end_(distance_ == 0 ? 0 : slots.size() - distance_),
        straddles_((reinterpret_cast<std::uintptr_t>(base) | stride_bytes) % kLine != 0) {}

  HWY_INLINE void Ahead(std::size_t i) const {
    if (i < end_) Prefetch(slots_[i + distance_]);
  }

  // The rows that Ahead will not reach because the batch starts with them: all of a small one.
  HWY_INLINE void Start() const {
    for (std::size_t i = 0; i < distance_; ++i) Prefetch(slots_[i]);
  }

 private:
  static constexpr std::size_t kLine = 64;

  HWY_INLINE void Prefetch(std::uint32_t slot) const {
    const auto* const row = reinterpret_cast<const char*>(base_ + slot * stride_bytes_);
    for (std::size_t at = 0; at < row_bytes_; at += kLine) hwy::Prefetch(row + at);
    if (straddles_) hwy::Prefetch(row + row_bytes_ - 1);
  }

  const std::byte* base_;
  std::size_t stride_bytes_;
  std::size_t row_bytes_;
  const std::uint32_t* slots_;
  std::size_t distance_;
  std::size_t end_;  // End of the entries that have one `distance` after them.
  bool straddles_;   // Rows may end in one line more than their size needs.
};

}  // namespace embla::kernels
