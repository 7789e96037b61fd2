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

template <class Format>
void GatherRows(const Rows& rows, std::span<const std::uint32_t> slots, const Output& out,
                std::size_t prefetch_rows) {
  const auto* const base = static_cast<const std::byte*>(rows.base);
  const std::size_t row_bytes = ElementBytes(rows.element) * rows.columns;
  const RowPrefetcher prefetcher(base, rows.stride_bytes, row_bytes, slots, prefetch_rows);
  auto* target = static_cast<std::byte*>(out.base);
  prefetcher.Start();
  for (std::size_t i = 0; i < slots.size(); ++i, target += out.stride_bytes) {
    prefetcher.Ahead(i);
    if (slots[i] == kNoSlot) {
      std::memset(target, 0, RowBytes(out.element, rows.columns));
      continue;
    }
    const std::byte* const row = base + slots[i] * rows.stride_bytes;
    if (out.element == rows.element) {
      std::memcpy(target, row, row_bytes);  // A NaN keeps its payload.
    } else {
      EncodeRow(FormatReader<Format>(row), out.element, target, rows.columns);
    }
  }
}

void GatherAll(const Rows& rows, std::span<const std::uint32_t> slots, const Output& out,
               std::size_t prefetch_rows) {
  switch (rows.element) {
    case Element::kFloat16:
      return GatherRows<Float16>(rows, slots, out, prefetch_rows);
    case Element::kBFloat16:
      return GatherRows<BFloat16>(rows, slots, out, prefetch_rows);
    default:
      return GatherRows<Float32>(rows, slots, out, prefetch_rows);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace embla::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace embla::kernels {
HWY_EXPORT(GatherAll);

void Gather(const Rows& rows, std::span<const std::uint32_t> slots, const Output& out,
            const LookupTuning& tuning) {
  const std::size_t row_bytes = ElementBytes(rows.element) * rows.columns;
  const std::size_t distance = tuning.prefetch_rows != LookupTuning::kAuto
                                   ? tuning.prefetch_rows
                                   : GatherPrefetchRows(row_bytes);
  HWY_DYNAMIC_DISPATCH(GatherAll)(rows, slots, out, distance);
}

}  // namespace embla::kernels
#endif  // HWY_ONCE
