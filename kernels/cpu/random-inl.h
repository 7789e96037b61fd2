// Random bits for vectors of columns, and stochastic rounding with them; included once per Highway
// target.
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/elements-inl.h"
#include "kernels/random.h"

#if defined(EMBLA_KERNELS_CPU_RANDOM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EMBLA_KERNELS_CPU_RANDOM_INL_H_
#undef EMBLA_KERNELS_CPU_RANDOM_INL_H_
#else
#define EMBLA_KERNELS_CPU_RANDOM_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace embla::kernels {
namespace HWY_NAMESPACE {

// RandomBits of random.h for consecutive columns.
template <class D>
HWY_INLINE hn::Vec<U32<D>> MixVector(D, hn::Vec<U32<D>> x) {
  const U32<D> du;
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(du, 0x7feb352du));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(du, 0x846ca68bu));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}

template <class D>
HWY_INLINE hn::Vec<U32<D>> RandomVector(D d, std::uint64_t row_key, std::uint32_t column) {
  const U32<D> du;
  const auto columns = hn::Iota(du, column);
  const auto low = hn::Set(du, static_cast<std::uint32_t>(row_key));
  const auto high = hn::Set(du, static_cast<std::uint32_t>(row_key >> 32));
  const auto x = hn::Add(hn::Mul(columns, hn::Set(du, 0x9e3779b9u)), low);
  return MixVector(d, hn::Xor(MixVector(d, x), high));
}

// Stores that round away from zero with the probability of the part that is cut off. `random` has
// 32 bits for each column.
struct StochasticBFloat16 {
  template <class D>
  static HWY_INLINE void Store(D d, hn::Vec<D> v, hn::Vec<U32<D>> random, std::byte* p,
                               std::size_t column) {
    BFloat16::StoreAdding(d, v, hn::ShiftRight<16>(random), p, column);
  }
};

struct StochasticFloat16 {
  template <class D>
  static HWY_INLINE void Store(D d, hn::Vec<D> v, hn::Vec<U32<D>> random, std::byte* p,
                               std::size_t column) {
    const U32<D> du;
    const I32<D> di;
    const auto bits = hn::BitCast(du, v);
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
    const auto raised = hn::Add(magnitude, hn::ShiftRight<19>(random));
    const auto normal = hn::ShiftRight<13>(hn::Sub(raised, hn::Set(du, 112u << 23)));
    // Subnormals are multiples of 2^-24: compare the fraction with 24 random bits. Larger values
    // are masked first, so that the conversion cannot overflow; Assemble ignores them here.
    const auto is_small =
        hn::BitCast(di, magnitude) < hn::Set(di, static_cast<int>(Float16::kSmallestNormal));
    const auto small = hn::IfThenElseZero(hn::RebindMask(du, is_small), magnitude);
    const auto scaled = hn::BitCast(d, small) * hn::Set(d, 16777216.0f);
    const auto whole = hn::ConvertTo(di, scaled);
    const auto fraction = scaled - hn::ConvertTo(d, whole);
    const auto uniform = hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<8>(random))) *
                         hn::Set(d, 5.9604644775390625e-8f);
    const auto up = hn::IfThenElseZero(hn::RebindMask(du, uniform < fraction), hn::Set(du, 1u));
    const auto subnormal = hn::Add(hn::BitCast(du, whole), up);
    StoreHalves(Float16::Assemble(d, bits, normal, subnormal), d, p + column * 2);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace embla::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
