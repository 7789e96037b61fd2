// Sums over columns by the 16-lane tree of row_kernels.h; included once per Highway target.
#include <cstddef>

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

// The lanes of `v` added as a tree: halves, then quarters, and so on.
template <class D>
HWY_INLINE float TreeOfLanes(D d, hn::Vec<D> v) {
#if HWY_TARGET == HWY_SCALAR  // Has no UpperHalf.
  return hn::GetLane(v);
#else
#if HWY_TARGET != HWY_SCALAR  // The scalar target has one lane, and no UpperHalf.
  if constexpr (hn::MaxLanes(D()) > 1) {
    const hn::Half<D> half;
    return TreeOfLanes(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
#endif
  return hn::GetLane(v);
#endif
}

// sum over c < columns of value.At(d, c)^2. Past the last whole group of 16, lanes without a column
// add a zero square, which changes nothing: a lane is never -0.
template <class Value>
HWY_INLINE float SumSquares(std::size_t columns, const Value& value) {
  const hn::CappedTag<float, kTreeLanes> d;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::CappedTag<float, kTreeLanes>());
  constexpr std::size_t kVectors = kTreeLanes / kLanes;
  hn::Vec<decltype(d)> sum[kVectors];
  for (auto& s : sum) s = hn::Zero(d);
  std::size_t c = 0;
  for (; c + kTreeLanes <= columns; c += kTreeLanes) {
    for (std::size_t k = 0; k < kVectors; ++k) {
      const auto v = value.At(d, c + k * kLanes);
      sum[k] = hn::Add(sum[k], hn::Mul(v, v));
    }
  }
  if (c < columns) {
    HWY_ALIGN float rest[kTreeLanes] = {};
    for (std::size_t lane = 0; c + lane < columns; ++lane) {
      rest[lane] = hn::GetLane(value.At(hn::CappedTag<float, 1>(), c + lane));
    }
    for (std::size_t k = 0; k < kVectors; ++k) {
      const auto v = hn::Load(d, rest + k * kLanes);
      sum[k] = hn::Add(sum[k], hn::Mul(v, v));
    }
  }
  for (std::size_t half = kVectors / 2; half > 0; half /= 2) {
    for (std::size_t k = 0; k < half; ++k) sum[k] = hn::Add(sum[k], sum[k + half]);
  }
  return TreeOfLanes(d, sum[0]);
}

}  // namespace HWY_NAMESPACE
}  // namespace embla::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
