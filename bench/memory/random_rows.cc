#include "bench/memory/random_rows.h"

#include "hwy/cache_control.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/memory/random_rows.cc"
#include "hwy/foreach_target.h"  // NOLINT: must come before highway.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace embla::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE void PrefetchRow(const RowArray& rows, std::uint32_t slot) {
  const std::byte* const row = rows.base + slot * rows.stride_bytes;
  for (std::size_t at = 0; at < rows.row_bytes; at += 64) {
    hwy::Prefetch(reinterpret_cast<const char*>(row + at));
  }
}

std::uint32_t XorAll(const RowArray& rows, std::span<const std::uint32_t> slots,
                     std::size_t prefetch_rows) {
  const hn::ScalableTag<std::uint32_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t words = rows.row_bytes / 4;
  auto sum = hn::Zero(d);
  std::uint32_t tail = 0;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (prefetch_rows != 0 && i + prefetch_rows < slots.size()) {
      PrefetchRow(rows, slots[i + prefetch_rows]);
    }
    const auto* const row =
        reinterpret_cast<const std::uint32_t*>(rows.base + slots[i] * rows.stride_bytes);
    std::size_t c = 0;
    for (; c + lanes <= words; c += lanes) sum = hn::Xor(sum, hn::LoadU(d, row + c));
    for (; c < words; ++c) tail ^= row[c];
  }
  HWY_ALIGN std::uint32_t parts[hn::MaxLanes(d)];
  hn::Store(sum, d, parts);
  for (std::size_t l = 0; l < lanes; ++l) tail ^= parts[l];
  return tail;
}

void CopyAll(const RowArray& rows, std::span<const std::uint32_t> slots, std::byte* out,
             std::size_t prefetch_rows) {
  const hn::ScalableTag<std::uint32_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t words = rows.row_bytes / 4;
  auto* target = reinterpret_cast<std::uint32_t*>(out);
  for (std::size_t i = 0; i < slots.size(); ++i, target += words) {
    if (prefetch_rows != 0 && i + prefetch_rows < slots.size()) {
      PrefetchRow(rows, slots[i + prefetch_rows]);
    }
    const auto* const row =
        reinterpret_cast<const std::uint32_t*>(rows.base + slots[i] * rows.stride_bytes);
    std::size_t c = 0;
    for (; c + lanes <= words; c += lanes) hn::StoreU(hn::LoadU(d, row + c), d, target + c);
    for (; c < words; ++c) target[c] = row[c];
  }
}

void IncrementAll(std::span<const RowArray> arrays, std::span<const std::uint32_t> slots,
                  std::size_t prefetch_rows) {
  const hn::ScalableTag<std::uint32_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto one = hn::Set(d, 1u);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    for (const RowArray& rows : arrays) {
      if (prefetch_rows != 0 && i + prefetch_rows < slots.size()) {
        PrefetchRow(rows, slots[i + prefetch_rows]);
      }
      auto* const row = reinterpret_cast<std::uint32_t*>(rows.base + slots[i] * rows.stride_bytes);
      const std::size_t words = rows.row_bytes / 4;
      std::size_t c = 0;
      for (; c + lanes <= words; c += lanes) {
        hn::StoreU(hn::Add(hn::LoadU(d, row + c), one), d, row + c);
      }
      for (; c < words; ++c) ++row[c];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace embla::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace embla::bench {
HWY_EXPORT(XorAll);
HWY_EXPORT(CopyAll);
HWY_EXPORT(IncrementAll);

std::uint32_t XorRows(const RowArray& rows, std::span<const std::uint32_t> slots,
                      std::size_t prefetch_rows) {
  return HWY_DYNAMIC_DISPATCH(XorAll)(rows, slots, prefetch_rows);
}

void CopyRows(const RowArray& rows, std::span<const std::uint32_t> slots, std::byte* out,
              std::size_t prefetch_rows) {
  HWY_DYNAMIC_DISPATCH(CopyAll)(rows, slots, out, prefetch_rows);
}

void IncrementRows(std::span<const RowArray> arrays, std::span<const std::uint32_t> slots,
                   std::size_t prefetch_rows) {
  HWY_DYNAMIC_DISPATCH(IncrementAll)(arrays, slots, prefetch_rows);
}

}  // namespace embla::bench
#endif  // HWY_ONCE
