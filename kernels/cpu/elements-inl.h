// Elements of every format as fp32 vectors, and back; included once per Highway target.
//
// Loads and stores take byte addresses of any alignment. A format is a small struct with
//   Load(d, p, column)       the fp32 values of columns column.. of the row at p
//   Store(d, v, p, column)   their narrowing
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/row_kernels.h"

#if defined(EMBLA_KERNELS_CPU_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EMBLA_KERNELS_CPU_ELEMENTS_INL_H_
#undef EMBLA_KERNELS_CPU_ELEMENTS_INL_H_
#else
#define EMBLA_KERNELS_CPU_ELEMENTS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace embla::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One lane is moved with memcpy: Highway would dereference a pointer that may be unaligned.
template <class D>
HWY_INLINE hn::Vec<D> LoadBytes(D d, const std::byte* p) {
  using T = hn::TFromD<D>;
  if constexpr (hn::MaxLanes(D()) == 1) {
    T value;
    std::memcpy(&value, p, sizeof(T));
    return hn::Set(d, value);
  } else {
    return hn::LoadU(d, reinterpret_cast<const T*>(p));
  }
}

template <class D>
HWY_INLINE void StoreBytes(hn::Vec<D> v, D d, std::byte* p) {
  using T = hn::TFromD<D>;
  if constexpr (hn::MaxLanes(D()) == 1) {
    const T value = hn::GetLane(v);
    std::memcpy(p, &value, sizeof(T));
  } else {
    hn::StoreU(v, d, reinterpret_cast<T*>(p));
  }
}

// Calls f(d, column) for vectors that cover [0, columns): widest first, then 4 lanes, then 1.
template <class F>
HWY_INLINE void ForColumns(std::size_t columns, F& f) {
  const hn::ScalableTag<float> wide;
  const hn::CappedTag<float, 4> narrow;
  const hn::CappedTag<float, 1> single;
  std::size_t c = 0;
  for (; c + hn::Lanes(wide) <= columns; c += hn::Lanes(wide)) f(wide, c);
  for (; c + hn::Lanes(narrow) <= columns; c += hn::Lanes(narrow)) f(narrow, c);
  for (; c < columns; ++c) f(single, c);
}

template <class D>
using U32 = hn::RebindToUnsigned<D>;
template <class D>
using I32 = hn::RebindToSigned<D>;
template <class D>
using U16 = hn::Rebind<std::uint16_t, D>;

template <class D>
HWY_INLINE hn::Vec<U32<D>> LoadHalves(D, const std::byte* p) {
  return hn::PromoteTo(U32<D>(), LoadBytes(U16<D>(), p));
}

template <class D>
HWY_INLINE void StoreHalves(hn::Vec<U32<D>> halves, D, std::byte* p) {
  StoreBytes(hn::DemoteTo(U16<D>(), hn::BitCast(I32<D>(), halves)), U16<D>(), p);
}

struct Float32 {
  static constexpr Element kElement = Element::kFloat32;

  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const std::byte* p, std::size_t column) {
    return LoadBytes(d, p + column * 4);
  }
  template <class D>
  static HWY_INLINE void Store(D d, hn::Vec<D> v, std::byte* p, std::size_t column) {
    StoreBytes(v, d, p + column * 4);
  }
};

struct BFloat16 {
  static constexpr Element kElement = Element::kBFloat16;

  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const std::byte* p, std::size_t column) {
    return hn::BitCast(d, hn::ShiftLeft<16>(LoadHalves(d, p + column * 2)));
  }

  // Adds `below` to the 16 bits that are cut off, which carries into the kept ones.
  template <class D>
  static HWY_INLINE void StoreAdding(D d, hn::Vec<D> v, hn::Vec<U32<D>> below, std::byte* p,
                                     std::size_t column) {
    const U32<D> du;
    const auto bits = hn::BitCast(du, v);
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
    const auto infinity = hn::Set(du, 0x7f800000u);
    const auto is_nan = hn::BitCast(I32<D>(), magnitude) > hn::BitCast(I32<D>(), infinity);
    const auto is_infinite = magnitude == infinity;
    auto kept = hn::ShiftRight<16>(hn::Add(bits, below));
    kept = hn::IfThenElse(is_infinite, hn::ShiftRight<16>(bits), kept);
    const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40u));
    kept = hn::IfThenElse(hn::RebindMask(du, is_nan), quiet, kept);
    StoreHalves(kept, d, p + column * 2);
  }

  template <class D>
  static HWY_INLINE void Store(D d, hn::Vec<D> v, std::byte* p, std::size_t column) {
    const U32<D> du;
    const auto odd = hn::And(hn::ShiftRight<16>(hn::BitCast(du, v)), hn::Set(du, 1u));
    StoreAdding(d, v, hn::Add(odd, hn::Set(du, 0x7fffu)), p, column);
  }
};

struct Float16 {
  static constexpr Element kElement = Element::kFloat16;
  static constexpr std::uint32_t kSmallestNormal = 113u << 23;  // 2^-14 as fp32 bits.
  static constexpr std::uint32_t kInfinityFrom = 143u << 23;    // 2^16.

  // `normal` for |v| in [2^-14, 2^16), `subnormal` below; infinity, NaN and the sign are added.
  template <class D>
  static HWY_INLINE hn::Vec<U32<D>> Assemble(D, hn::Vec<U32<D>> bits, hn::Vec<U32<D>> normal,
                                             hn::Vec<U32<D>> subnormal) {
    const U32<D> du;
    const I32<D> di;
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
    const auto signed_magnitude = hn::BitCast(di, magnitude);
    const auto small = signed_magnitude < hn::Set(di, static_cast<int>(kSmallestNormal));
    const auto large = signed_magnitude > hn::Set(di, static_cast<int>(kInfinityFrom) - 1);
    const auto is_nan = signed_magnitude > hn::Set(di, 0x7f800000);
    auto half = hn::IfThenElse(hn::RebindMask(du, small), subnormal, normal);
    half = hn::IfThenElse(hn::RebindMask(du, large), hn::Set(du, 0x7c00u), half);
    half = hn::IfThenElse(hn::RebindMask(du, is_nan), hn::Set(du, 0x7e00u), half);
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000u));
    return hn::Or(half, sign);
  }

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const std::byte* p, std::size_t column) {
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::PromoteTo(d, hn::BitCast(dh, LoadBytes(U16<D>(), p + column * 2)));
  }
  template <class D>
  static HWY_INLINE void Store(D d, hn::Vec<D> v, std::byte* p, std::size_t column) {
    const hn::Rebind<hwy::float16_t, D> dh;
    StoreBytes(hn::BitCast(U16<D>(), hn::DemoteTo(dh, v)), U16<D>(), p + column * 2);
  }
#else
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const std::byte* p, std::size_t column) {
    const U32<D> du;
    const auto half = LoadHalves(d, p + column * 2);
    const auto shifted = hn::ShiftLeft<13>(hn::And(half, hn::Set(du, 0x7fffu)));
    const auto exponent = hn::And(shifted, hn::Set(du, 0x0f800000u));
    const auto rebias = hn::Set(du, 112u << 23);
    auto bits = hn::Add(shifted, rebias);
    bits = hn::IfThenElse(exponent == hn::Set(du, 0x0f800000u), hn::Add(bits, rebias), bits);
    const auto magic = hn::BitCast(d, hn::Set(du, kSmallestNormal));
    const auto subnormal = hn::BitCast(d, hn::Add(bits, hn::Set(du, 1u << 23))) - magic;
    bits = hn::IfThenElse(exponent == hn::Zero(du), hn::BitCast(du, subnormal), bits);
    const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000u)));
    return hn::BitCast(d, hn::Or(bits, sign));
  }
  template <class D>
  static HWY_INLINE void Store(D d, hn::Vec<D> v, std::byte* p, std::size_t column) {
    const U32<D> du;
    const auto bits = hn::BitCast(du, v);
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
    const auto rounded = hn::Add(magnitude, hn::Add(odd, hn::Set(du, 0xfffu)));
    const auto normal = hn::ShiftRight<13>(hn::Sub(rounded, hn::Set(du, 112u << 23)));
    // 0.5 has its last bit at 2^-24, where fp16's subnormals end: the addition rounds there.
    const auto half_bits = hn::Set(du, 126u << 23);
    const auto sum = hn::BitCast(d, magnitude) + hn::BitCast(d, half_bits);
    const auto subnormal = hn::Sub(hn::BitCast(du, sum), half_bits);
    StoreHalves(Assemble(d, bits, normal, subnormal), d, p + column * 2);
  }
#endif
};

}  // namespace HWY_NAMESPACE
}  // namespace embla::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
