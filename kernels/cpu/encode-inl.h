// One row from any element format to any other; included once per Highway target.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "hwy/highway.h"
#include "kernels/cpu/elements-inl.h"
#include "kernels/row_kernels.h"

#if defined(EMBLA_KERNELS_CPU_ENCODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EMBLA_KERNELS_CPU_ENCODE_INL_H_
#undef EMBLA_KERNELS_CPU_ENCODE_INL_H_
#else
#define EMBLA_KERNELS_CPU_ENCODE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace embla::kernels {
namespace HWY_NAMESPACE {

// A row as fp32 vectors: At(d, column).
template <class Format>
struct FormatReader {
  const std::byte* row;
  explicit FormatReader(const std::byte* p) : row(p) {}
  template <class D>
  HWY_INLINE hn::Vec<D> At(D d, std::size_t column) const {
    return Format::Load(d, row, column);
  }
};

struct Int8Reader {
  float scale;
  float bias;
  const std::byte* codes;
  explicit Int8Reader(const std::byte* p) : codes(p + kInt8RowHeaderBytes) {
    std::memcpy(&scale, p, 4);
    std::memcpy(&bias, p + 4, 4);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> At(D d, std::size_t column) const {
    const hn::Rebind<std::uint8_t, D> d8;
    const auto code = hn::ConvertTo(d, hn::PromoteTo(I32<D>(), LoadBytes(d8, codes + column)));
    return hn::Add(hn::Mul(code, hn::Set(d, scale)), hn::Set(d, bias));
  }
};

template <class Reader, class Format>
struct NarrowColumns {
  const Reader& reader;
  std::byte* out;
  template <class D>
  HWY_INLINE void operator()(D d, std::size_t column) {
    Format::Store(d, reader.At(d, column), out, column);
  }
};

template <class Reader>
struct QuantizeColumns {
  const Reader& reader;
  float bias;
  float inverse_scale;
  std::byte* codes;
  template <class D>
  HWY_INLINE void operator()(D d, std::size_t column) {
    const auto steps =
        hn::Mul(hn::Sub(reader.At(d, column), hn::Set(d, bias)), hn::Set(d, inverse_scale));
    const auto clamped = hn::Min(hn::Max(steps, hn::Zero(d)), hn::Set(d, 255.0f));
    // Adding 2^23 rounds to an integer, nearest even, which then is the low byte.
    const auto bits = hn::BitCast(I32<D>(), hn::Add(clamped, hn::Set(d, 8388608.0f)));
    const auto code = hn::And(bits, hn::Set(I32<D>(), 255));
    const hn::Rebind<std::uint8_t, D> d8;
    StoreBytes(hn::DemoteTo(d8, code), d8, codes + column);
  }
};

struct RowRange {
  float lowest = std::numeric_limits<float>::infinity();
  float highest = -std::numeric_limits<float>::infinity();
  std::int32_t magnitude_bits = 0;  // Largest; from 0x7f800000 on it is no finite number.
};

// Widens `range` by the vectors of tag D that fit in [column, columns); returns where they end.
template <class Reader, class D>
HWY_INLINE std::size_t Measure(D d, const Reader& reader, std::size_t column, std::size_t columns,
                               RowRange& range) {
  const I32<D> di;
  auto lowest = hn::Set(d, range.lowest);
  auto highest = hn::Set(d, range.highest);
  auto bits = hn::Set(di, range.magnitude_bits);
  for (; column + hn::Lanes(d) <= columns; column += hn::Lanes(d)) {
    const auto v = reader.At(d, column);
    lowest = hn::Min(lowest, v);
    highest = hn::Max(highest, v);
    bits = hn::Max(bits, hn::BitCast(di, hn::Abs(v)));
  }
  range.lowest = hn::GetLane(hn::MinOfLanes(d, lowest));
  range.highest = hn::GetLane(hn::MaxOfLanes(d, highest));
  range.magnitude_bits = hn::GetLane(hn::MaxOfLanes(di, bits));
  return column;
}

template <class Reader>
HWY_INLINE void EncodeInt8(const Reader& reader, std::byte* out, std::size_t columns) {
  RowRange range;
  const std::size_t rest = Measure(hn::ScalableTag<float>(), reader, 0, columns, range);
  Measure(hn::CappedTag<float, 1>(), reader, rest, columns, range);
  float bias = columns == 0 ? 0.0f : range.lowest + 0.0f;  // -0 becomes +0.
  const float width = columns == 0 ? 0.0f : range.highest - bias;
  float scale = width / 255.0f;
  if (range.magnitude_bits >= 0x7f800000 || width > std::numeric_limits<float>::max()) {
    scale = bias = std::numeric_limits<float>::quiet_NaN();
  } else if (scale < std::numeric_limits<float>::min()) {
    scale = 0.0f;
  }
  std::memcpy(out, &scale, 4);
  std::memcpy(out + 4, &bias, 4);
  if (!(scale > 0.0f)) {
    std::memset(out + kInt8RowHeaderBytes, 0, columns);
    return;
  }
  QuantizeColumns<Reader> quantize{reader, bias, 1.0f / scale, out + kInt8RowHeaderBytes};
  ForColumns(columns, quantize);
}

template <class Reader>
HWY_INLINE void EncodeRow(const Reader& reader, Element element, std::byte* out,
                          std::size_t columns) {
  switch (element) {
    case Element::kFloat32: {
      NarrowColumns<Reader, Float32> narrow{reader, out};
      return ForColumns(columns, narrow);
    }
    case Element::kFloat16: {
      NarrowColumns<Reader, Float16> narrow{reader, out};
      return ForColumns(columns, narrow);
    }
    case Element::kBFloat16: {
      NarrowColumns<Reader, BFloat16> narrow{reader, out};
      return ForColumns(columns, narrow);
    }
    case Element::kInt8Rowwise:
      return EncodeInt8(reader, out, columns);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace embla::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
