#include "kernels/initialize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/initialize.cc"
#include "hwy/foreach_target.h"  // NOLINT: must come before highway.h.
#include "hwy/highway.h"
#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/random-inl.h"
#include "kernels/normal.h"

HWY_BEFORE_NAMESPACE();
namespace embla::kernels {
namespace HWY_NAMESPACE {

struct ConstantColumns {
  float a;
  template <class D>
  HWY_INLINE hn::Vec<D> Values(D d, std::uint64_t, std::uint32_t) const {
    return hn::Set(d, a);
  }
};

struct UniformColumns {
  float a;
  float width;    // b - a
  float highest;  // The largest value allowed.
  template <class D>
  HWY_INLINE hn::Vec<D> Values(D d, std::uint64_t key, std::uint32_t column) const {
    const auto bits = hn::BitCast(I32<D>(), hn::ShiftRight<8>(RandomVector(d, key, column)));
    const auto u = hn::Mul(hn::ConvertTo(d, bits), hn::Set(d, 5.9604644775390625e-8f));
    const auto value = hn::Add(hn::Set(d, a), hn::Mul(hn::Set(d, width), u));
    return hn::Min(value, hn::Set(d, highest));
  }
};

struct NormalColumns {
  double mean;
  double deviation;
  template <class D>
  HWY_INLINE hn::Vec<D> Values(D d, std::uint64_t key, std::uint32_t column) const {
    HWY_ALIGN float values[hn::MaxLanes(D())];
    for (std::size_t k = 0; k < hn::Lanes(d); ++k) {
      const double z = StandardNormal(RandomBits(key, column + static_cast<std::uint32_t>(k)));
      values[k] = static_cast<float>(mean + deviation * z);
    }
    return hn::Load(d, values);
  }
};

template <class Format, class Generator>
struct FillColumns {
  const Generator& generator;
  std::byte* row;
  std::uint64_t key;
  std::uint32_t column_begin;
  template <class D>
  HWY_INLINE void operator()(D d, std::size_t column) {
    const auto v = generator.Values(d, key, column_begin + static_cast<std::uint32_t>(column));
    Format::Store(d, v, row, column);
  }
};

template <class Format, class Generator>
void Fill(const Generator& generator, std::uint64_t batch_key, const InitRows& rows,
          std::size_t first_slot, std::size_t row_count) {
  auto* const base = static_cast<std::byte*>(rows.weights.base);
  for (std::size_t slot = first_slot; slot < first_slot + row_count; ++slot) {
    const std::uint64_t key = RowKey(batch_key, rows.first_row + static_cast<std::int64_t>(slot));
    FillColumns<Format, Generator> fill{generator, base + slot * rows.weights.stride_bytes, key,
                                        rows.column_begin};
    ForColumns(rows.weights.columns, fill);
  }
}

template <class Generator>
void FillElements(const Generator& generator, std::uint64_t batch_key, const InitRows& rows,
                  std::size_t first_slot, std::size_t row_count) {
  switch (rows.weights.element) {
    case Element::kFloat16:
      return Fill<Float16>(generator, batch_key, rows, first_slot, row_count);
    case Element::kBFloat16:
      return Fill<BFloat16>(generator, batch_key, rows, first_slot, row_count);
    default:
      return Fill<Float32>(generator, batch_key, rows, first_slot, row_count);
  }
}

void InitializeAll(const InitParameters& parameters, const InitRows& rows, std::size_t first_slot,
                   std::size_t row_count) {
  const std::uint64_t batch_key = BatchKey(RandomPurpose::kInitialize, parameters.seed, 0, 0);
  const float a = parameters.a;
  const float b = parameters.b;
  switch (parameters.rule) {
    case InitRule::kConstant:
      return FillElements(ConstantColumns{a}, batch_key, rows, first_slot, row_count);
    case InitRule::kUniform: {
      const float highest =
          a < b ? std::nextafter(b, -std::numeric_limits<float>::infinity()) : std::max(a, b);
      return FillElements(UniformColumns{a, b - a, highest}, batch_key, rows, first_slot,
                          row_count);
    }
    case InitRule::kNormal:
      return FillElements(NormalColumns{a, b}, batch_key, rows, first_slot, row_count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace embla::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace embla::kernels {
HWY_EXPORT(InitializeAll);

void Initialize(const InitParameters& parameters, const InitRows& rows, std::size_t first_slot,
                std::size_t row_count) {
  HWY_DYNAMIC_DISPATCH(InitializeAll)(parameters, rows, first_slot, row_count);
}

}  // namespace embla::kernels
#endif  // HWY_ONCE
