// Sums over bags. A block of up to 16 (AVX-512) or 8 vectors of a bag's sum stays in registers
// while the bag's rows stream by; the flat id stream, not the bag, drives the prefetch, so that
// short bags keep as many rows in flight as long ones.
#include <cstring>
#include <utility>

#include "kernels/lookup.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pool.cc"
#include "hwy/foreach_target.h"  // NOLINT: must come before highway.h.
#include "hwy/highway.h"
#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/prefetch.h"

HWY_BEFORE_NAMESPACE();
namespace embla::kernels {
namespace HWY_NAMESPACE {

// Vectors of a sum that stay in registers at once.
inline constexpr std::size_t kBlockMax = hn::MaxLanes(hn::ScalableTag<float>()) >= 16 ? 16 : 8;

// One bag: its place in the flat id stream, and where its sum goes.
struct Bag {
  std::size_t begin;
  std::size_t end;
  std::byte* out;
};

struct PoolSource {
  const Rows& rows;
  const Bags& bags;
  const RowPrefetcher& prefetcher;
};

// K vectors of tag D from `column` on, over all rows of the bag.
template <class Format, bool kPrefetch, class D, std::size_t... K>
HWY_INLINE void SumBlock(D d, const PoolSource& source, const Bag& bag, std::size_t column,
                         std::index_sequence<K...>) {
  const std::size_t lanes = hn::Lanes(d);
  const auto* const base = static_cast<const std::byte*>(source.rows.base);
  const float* const weights = source.bags.weights;
  hn::Vec<D> sum[sizeof...(K)];
  ((sum[K] = hn::Zero(d)), ...);
  for (std::size_t i = bag.begin; i < bag.end; ++i) {
    if constexpr (kPrefetch) {
      if (column == 0) source.prefetcher.Ahead(i);
    }
    const std::uint32_t slot = source.bags.slots[i];
    if (slot == kNoSlot) continue;
    const std::byte* const row = base + slot * source.rows.stride_bytes;
    if (weights == nullptr) {
      ((sum[K] = hn::Add(sum[K], Format::Load(d, row, column + K * lanes))), ...);
    } else {
      const auto w = hn::Set(d, weights[i]);
      ((sum[K] = hn::Add(sum[K], hn::Mul(w, Format::Load(d, row, column + K * lanes)))), ...);
    }
  }
  ((Float32::Store(d, sum[K], bag.out, column + K * lanes)), ...);
}

// All columns from `column` on that blocks of exactly K vectors cover.
template <std::size_t K, class Format, bool kPrefetch, class D>
HWY_INLINE std::size_t SumBlocks(D d, const PoolSource& source, const Bag& bag,
                                 std::size_t column) {
  for (; column + K * hn::Lanes(d) <= source.rows.columns; column += K * hn::Lanes(d)) {
    SumBlock<Format, kPrefetch>(d, source, bag, column, std::make_index_sequence<K>());
  }
  return column;
}

template <class Format, bool kPrefetch>
HWY_INLINE void SumBag(const PoolSource& source, const Bag& bag) {
  const hn::ScalableTag<float> wide;
  const hn::CappedTag<float, 4> narrow;
  const hn::CappedTag<float, 1> single;
  std::size_t column = SumBlocks<kBlockMax, Format, kPrefetch>(wide, source, bag, 0);
  if constexpr (kBlockMax > 8) column = SumBlocks<8, Format, kPrefetch>(wide, source, bag, column);
  column = SumBlocks<4, Format, kPrefetch>(wide, source, bag, column);
  column = SumBlocks<2, Format, kPrefetch>(wide, source, bag, column);
  column = SumBlocks<1, Format, kPrefetch>(wide, source, bag, column);
  column = SumBlocks<2, Format, kPrefetch>(narrow, source, bag, column);
  column = SumBlocks<1, Format, kPrefetch>(narrow, source, bag, column);
  SumBlocks<1, Format, kPrefetch>(single, source, bag, column);
}

template <class Format, bool kPrefetch>
void PoolBags(const PoolSource& source, const Output& out) {
  Bag bag{0, 0, static_cast<std::byte*>(out.base)};
  if constexpr (kPrefetch) source.prefetcher.Start();
  for (const std::uint32_t length : source.bags.lengths) {
    bag.end = bag.begin + length;
    if (length == 0) {
      std::memset(bag.out, 0, source.rows.columns * sizeof(float));
    } else {
      SumBag<Format, kPrefetch>(source, bag);
    }
    bag.begin = bag.end;
    bag.out += out.stride_bytes;
  }
}

void PoolAll(const Rows& rows, const Bags& bags, const Output& out, std::size_t prefetch_rows) {
  const std::size_t row_bytes = ElementBytes(rows.element) * rows.columns;
  const RowPrefetcher prefetcher(rows.base, rows.stride_bytes, row_bytes, bags.slots,
                                 prefetch_rows);
  const PoolSource source{rows, bags, prefetcher};
  const bool prefetch = prefetch_rows != 0;
  switch (rows.element) {
    case Element::kFloat16:
      return prefetch ? PoolBags<Float16, true>(source, out)
                      : PoolBags<Float16, false>(source, out);
    case Element::kBFloat16:
      return prefetch ? PoolBags<BFloat16, true>(source, out)
                      : PoolBags<BFloat16, false>(source, out);
    default:
      return prefetch ? PoolBags<Float32, true>(source, out)
                      : PoolBags<Float32, false>(source, out);
  }
}

struct DivideColumns {
  std::byte* row;
  float divisor;
  template <class D>
  HWY_INLINE void operator()(D d, std::size_t column) {
    const auto quotient = hn::Div(Float32::Load(d, row, column), hn::Set(d, divisor));
    Float32::Store(d, quotient, row, column);
  }
};

void DivideAll(const MutableRows& rows, std::span<const std::uint32_t> lengths) {
  DivideColumns divide{static_cast<std::byte*>(rows.base), 0.0f};
  for (const std::uint32_t length : lengths) {
    divide.divisor = static_cast<float>(length);
    if (length == 0) {
      std::memset(divide.row, 0, rows.columns * sizeof(float));
    } else {
      ForColumns(rows.columns, divide);
    }
    divide.row += rows.stride_bytes;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace embla::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace embla::kernels {
HWY_EXPORT(PoolAll);
HWY_EXPORT(DivideAll);

void Pool(const Rows& rows, const Bags& bags, const Output& out, const PrefetchTuning& tuning) {
  const std::size_t row_bytes = ElementBytes(rows.element) * rows.columns;
  const std::size_t distance = tuning.prefetch_rows != PrefetchTuning::kAuto
                                   ? tuning.prefetch_rows
                                   : PoolPrefetchRows(row_bytes);
  HWY_DYNAMIC_DISPATCH(PoolAll)(rows, bags, out, distance);
}

void DivideRows(const MutableRows& rows, std::span<const std::uint32_t> lengths) {
  HWY_DYNAMIC_DISPATCH(DivideAll)(rows, lengths);
}

}  // namespace embla::kernels
#endif  // HWY_ONCE
