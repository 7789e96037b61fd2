#include <cstring>

#include "kernels/lookup.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gather.cc"
#include "hwy/foreach_target.h"  // NOLINT: must come before highway.h.
#include "hwy/highway.h"
#include "kernels/cpu/encode-inl.h"
#include "kernels/cpu/prefetch.h"

HWY_BEFORE_NAMESPACE();
namespace embla::kernels {
namespace HWY_NAMESPACE {

// The same bits: a NaN keeps its payload.
struct CopyRow {
  std::size_t bytes;

  HWY_INLINE void operator()(const std::byte* row, std::byte* target) const {
    const hn::ScalableTag<std::uint8_t> d;
    const std::size_t lanes = hn::Lanes(d);
    const auto* const from = reinterpret_cast<const std::uint8_t*>(row);
    auto* const to = reinterpret_cast<std::uint8_t*>(target);
    if (bytes < lanes) {
      std::memcpy(to, from, bytes);
      return;
    }
    std::size_t at = 0;
    for (; at + lanes <= bytes; at += lanes) hn::StoreU(hn::LoadU(d, from + at), d, to + at);
    if (at < bytes) hn::StoreU(hn::LoadU(d, from + bytes - lanes), d, to + bytes - lanes);
  }
};

// Rows of exactly kVectors vectors: no loop, no tail.
template <std::size_t kVectors>
struct CopyWholeRow {
  HWY_INLINE void operator()(const std::byte* row, std::byte* target) const {
    const hn::ScalableTag<std::uint8_t> d;
    const std::size_t lanes = hn::Lanes(d);
    const auto* const from = reinterpret_cast<const std::uint8_t*>(row);
    auto* const to = reinterpret_cast<std::uint8_t*>(target);
    hn::Vec<decltype(d)> vectors[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) vectors[v] = hn::LoadU(d, from + v * lanes);
    for (std::size_t v = 0; v < kVectors; ++v) hn::StoreU(vectors[v], d, to + v * lanes);
  }
};

template <class Format>
struct ConvertRow {
  Element element;
  std::uint32_t columns;

  HWY_INLINE void operator()(const std::byte* row, std::byte* target) const {
    EncodeRow(FormatReader<Format>(row), element, target, columns);
  }
};

template <class Move>
void GatherRows(const Rows& rows, std::span<const std::uint32_t> slots, const Output& out,
                std::size_t prefetch_rows, const Move move) {
  const auto* const base = static_cast<const std::byte*>(rows.base);
  const std::size_t stride = rows.stride_bytes;
  const RowPrefetcher prefetcher(base, stride, ElementBytes(rows.element) * rows.columns, slots,
                                 prefetch_rows);
  auto* target = static_cast<std::byte*>(out.base);
  prefetcher.Start();
  for (std::size_t i = 0; i < slots.size(); ++i, target += out.stride_bytes) {
    prefetcher.Ahead(i);
    if (slots[i] != kNoSlot) {
      move(base + slots[i] * stride, target);
    } else {
      std::memset(target, 0, RowBytes(out.element, rows.columns));
    }
  }
}

void GatherAll(const Rows& rows, std::span<const std::uint32_t> slots, const Output& out,
               std::size_t prefetch_rows) {
  if (out.element == rows.element) {
    const std::size_t bytes = ElementBytes(rows.element) * rows.columns;
    const std::size_t lanes = hn::Lanes(hn::ScalableTag<std::uint8_t>());
    if (bytes == lanes) return GatherRows(rows, slots, out, prefetch_rows, CopyWholeRow<1>());
    if (bytes == 2 * lanes) return GatherRows(rows, slots, out, prefetch_rows, CopyWholeRow<2>());
    if (bytes == 4 * lanes) return GatherRows(rows, slots, out, prefetch_rows, CopyWholeRow<4>());
    if (bytes == 8 * lanes) return GatherRows(rows, slots, out, prefetch_rows, CopyWholeRow<8>());
    return GatherRows(rows, slots, out, prefetch_rows, CopyRow{bytes});
  }
  switch (rows.element) {
    case Element::kFloat16:
      return GatherRows(rows, slots, out, prefetch_rows,
                        ConvertRow<Float16>{out.element, rows.columns});
    case Element::kBFloat16:
      return GatherRows(rows, slots, out, prefetch_rows,
                        ConvertRow<BFloat16>{out.element, rows.columns});
    default:
      return GatherRows(rows, slots, out, prefetch_rows,
                        ConvertRow<Float32>{out.element, rows.columns});
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace embla::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace embla::kernels {
HWY_EXPORT(GatherAll);

void Gather(const Rows& rows, std::span<const std::uint32_t> slots, const Output& out,
            const PrefetchTuning& tuning) {
  const std::size_t row_bytes = ElementBytes(rows.element) * rows.columns;
  const std::size_t distance = tuning.prefetch_rows != PrefetchTuning::kAuto
                                   ? tuning.prefetch_rows
                                   : GatherPrefetchRows(row_bytes);
  HWY_DYNAMIC_DISPATCH(GatherAll)(rows, slots, out, distance);
}

}  // namespace embla::kernels
#endif  // HWY_ONCE
