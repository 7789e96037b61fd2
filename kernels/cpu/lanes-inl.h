// Sums over columns by the 16-lane tree of row_kernels.h; included once per Highway target.
#include <cstddef>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/elements-inl.h"

#if defined(EMBLA_KERNELS_CPU_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EMBLA_KERNELS_CPU_LANES_INL_H_
#undef EMBLA_KERNELS_CPU_LANES_INL_H_
#else
#define EMBLA_KERNELS_CPU_LANES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace embla::kernels {
namespace HWY_NAMESPACE {

inline constexpr std::size_t kTreeLanes = 16;

// sum over c < columns of value(d, c)^2. Past the last whole group of 16, lanes without a column
// add a zero square, which changes nothing: a lane is never -0.
template <class Value>
HWY_INLINE float SumSquares(std::size_t columns, const Value& value) {
  const hn::CappedTag<float, kTreeLanes> d;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN float tree[kTreeLanes] = {};
  std::size_t c = 0;
  hn::Vec<decltype(d)> sum[kTreeLanes / hn::MaxLanes(d)];
  for (auto& s : sum) s = hn::Zero(d);
  for (; c + kTreeLanes <= columns; c += kTreeLanes) {
    for (std::size_t k = 0; k < kTreeLanes / lanes; ++k) {
      const auto v = value.At(d, c + k * lanes);
      sum[k] = hn::Add(sum[k], hn::Mul(v, v));
    }
  }
  for (std::size_t k = 0; k < kTreeLanes / lanes; ++k) hn::Store(sum[k], d, tree + k * lanes);
  for (std::size_t lane = 0; c < columns; ++c, ++lane) {
    const float v = hn::GetLane(value.At(hn::CappedTag<float, 1>(), c));
    tree[lane] += v * v;
  }
  for (std::size_t half = kTreeLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) tree[lane] += tree[lane + half];
  }
  return tree[0];
}

}  // namespace HWY_NAMESPACE
}  // namespace embla::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
