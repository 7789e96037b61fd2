#include "kernels/combine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/combine.cc"
#include "hwy/foreach_target.h"  // NOLINT: must come before highway.h.
#include "hwy/highway.h"
#include "kernels/cpu/encode-inl.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/prefetch.h"

HWY_BEFORE_NAMESPACE();
namespace embla::kernels {
namespace HWY_NAMESPACE {

// One segment of the batch, and where its sum goes.
struct Segment {
  const std::uint32_t* positions;
  std::size_t count;
  float* sum;
};

// NaN stays NaN: comparisons with it are false.
template <class D>
HWY_INLINE hn::Vec<D> Clip(D d, hn::Vec<D> v, float clip) {
  const auto limit = hn::Set(d, clip);
  v = hn::IfThenElse(v > limit, limit, v);
  return hn::IfThenElse(v < hn::Neg(limit), hn::Neg(limit), v);
}

// The gradient of one position: its row, and what happens to each element.
template <class Reader>
struct PositionGradient {
  Reader reader;
  float clip;
  const float* factor;

  template <class D>
  HWY_INLINE hn::Vec<D> At(D d, std::size_t column) const {
    auto v = reader.At(d, column);
    if (clip > 0.0f) v = Clip(d, v, clip);
    if (factor != nullptr) v = hn::Mul(v, hn::Set(d, *factor));
    return v;
  }
};

template <class Reader>
HWY_INLINE PositionGradient<Reader> GradientOf(const Gradients& gradients, std::uint32_t position) {
  const std::size_t row = gradients.row_of == nullptr ? position : gradients.row_of[position];
  const auto* const p =
      static_cast<const std::byte*>(gradients.rows.base) + row * gradients.rows.stride_bytes;
  return {Reader(p), gradients.clip,
          gradients.factors == nullptr ? nullptr : gradients.factors + position};
}

// K vectors of tag D from `column` on: pieces from +0, then their sum from +0.
template <class Reader, class D, std::size_t... K>
HWY_INLINE void SumBlock(D d, const Gradients& gradients, const Segment& segment,
                         std::size_t column, std::index_sequence<K...>) {
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<D> total[sizeof...(K)];
  ((total[K] = hn::Zero(d)), ...);
  for (std::size_t begin = 0; begin < segment.count; begin += kCombinePiece) {
    const std::size_t end = std::min(begin + kCombinePiece, segment.count);
    hn::Vec<D> piece[sizeof...(K)];
    ((piece[K] = hn::Zero(d)), ...);
    for (std::size_t j = begin; j < end; ++j) {
      const auto gradient = GradientOf<Reader>(gradients, segment.positions[j]);
      ((piece[K] = hn::Add(piece[K], gradient.At(d, column + K * lanes))), ...);
    }
    ((total[K] = hn::Add(total[K], piece[K])), ...);
  }
  ((hn::StoreU(total[K], d, segment.sum + column + K * lanes)), ...);
}

template <std::size_t K, class Reader, class D>
HWY_INLINE std::size_t SumBlocks(D d, const Gradients& gradients, const Segment& segment,
                                 std::size_t column) {
  for (; column + K * hn::Lanes(d) <= gradients.columns; column += K * hn::Lanes(d)) {
    SumBlock<Reader>(d, gradients, segment, column, std::make_index_sequence<K>());
  }
  return column;
}

template <class Reader>
void SumAll(const Grouping& grouping, const Gradients& gradients, std::size_t first,
            std::size_t last, float* sums, std::size_t stride) {
  const hn::ScalableTag<float> wide;
  const hn::CappedTag<float, 4> narrow;
  const hn::CappedTag<float, 1> single;
  const std::size_t row_bytes = RowBytes(gradients.rows.element, gradients.columns);
  for (std::size_t i = first; i < last; ++i) {
    const std::size_t begin = grouping.offsets[i];
    const Segment segment{&grouping.positions[begin], grouping.offsets[i + 1] - begin,
                          sums + (i - first) * stride};
    const std::size_t ahead = begin + GatherPrefetchRows(row_bytes);
    if (ahead < grouping.positions.size()) {
      const std::uint32_t position = grouping.positions[ahead];
      const std::size_t row = gradients.row_of == nullptr ? position : gradients.row_of[position];
      PrefetchBytes(
          static_cast<const std::byte*>(gradients.rows.base) + row * gradients.rows.stride_bytes,
          row_bytes);
    }
    std::size_t column = SumBlocks<4, Reader>(wide, gradients, segment, 0);
    column = SumBlocks<1, Reader>(wide, gradients, segment, column);
    column = SumBlocks<1, Reader>(narrow, gradients, segment, column);
    SumBlocks<1, Reader>(single, gradients, segment, column);
  }
}

void SumSegmentsAll(const Grouping& grouping, const Gradients& gradients, std::size_t first,
                    std::size_t last, float* sums, std::size_t stride) {
  switch (gradients.rows.element) {
    case Element::kFloat32:
      return SumAll<FormatReader<Float32>>(grouping, gradients, first, last, sums, stride);
    case Element::kFloat16:
      return SumAll<FormatReader<Float16>>(grouping, gradients, first, last, sums, stride);
    case Element::kBFloat16:
      return SumAll<FormatReader<BFloat16>>(grouping, gradients, first, last, sums, stride);
    case Element::kInt8Rowwise:
      return SumAll<Int8Reader>(grouping, gradients, first, last, sums, stride);
  }
}

void SumSquaresAll(const Rows& rows, std::span<float> out) {
  const auto* row = static_cast<const std::byte*>(rows.base);
  for (float& sum : out) {
    sum = SumSquares(rows.columns, FormatReader<Float32>(row));
    row += rows.stride_bytes;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace embla::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace embla::kernels {
HWY_EXPORT(SumSegmentsAll);
HWY_EXPORT(SumSquaresAll);

void SumSegments(const Grouping& grouping, const Gradients& gradients, std::size_t first,
                 std::size_t last, std::span<float> sums, std::size_t stride) {
  HWY_DYNAMIC_DISPATCH(SumSegmentsAll)(grouping, gradients, first, last, sums.data(), stride);
}

void RowSumSquares(const Rows& rows, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(SumSquaresAll)(rows, out);
}

}  // namespace embla::kernels
#endif  // HWY_ONCE
