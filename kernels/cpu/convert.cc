#include "kernels/convert.h"

#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/convert.cc"
#include "hwy/foreach_target.h"  // NOLINT: must come before highway.h.
#include "hwy/highway.h"
#include "kernels/cpu/encode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace embla::kernels {
namespace HWY_NAMESPACE {

template <class Reader>
void ConvertRows(const Input& in, const Output& out, std::size_t row_count, std::uint32_t columns) {
  const auto* source = static_cast<const std::byte*>(in.base);
  auto* target = static_cast<std::byte*>(out.base);
  for (std::size_t i = 0; i < row_count; ++i) {
    EncodeRow(Reader(source), out.element, target, columns);
    source += in.stride_bytes;
    target += out.stride_bytes;
  }
}

void ConvertAll(const Input& in, const Output& out, std::size_t row_count, std::uint32_t columns) {
  switch (in.element) {
    case Element::kFloat32:
      return ConvertRows<FormatReader<Float32>>(in, out, row_count, columns);
    case Element::kFloat16:
      return ConvertRows<FormatReader<Float16>>(in, out, row_count, columns);
    case Element::kBFloat16:
      return ConvertRows<FormatReader<BFloat16>>(in, out, row_count, columns);
    case Element::kInt8Rowwise:
      return ConvertRows<Int8Reader>(in, out, row_count, columns);
  }
}

// Whether an element of type T at p[0..count) has all exponent bits set.
template <typename T>
bool AnyExponentFull(const std::byte* p, std::size_t count, T exponent) {
  const hn::ScalableTag<T> d;
  const auto mask = hn::Set(d, exponent);
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes, p += 4 * lanes * sizeof(T)) {
    auto any = hn::MaskFromVec(hn::Zero(d));
    for (std::size_t k = 0; k < 4; ++k) {
      const auto v = hn::And(LoadBytes(d, p + k * lanes * sizeof(T)), mask);
      any = hn::Or(any, v == mask);
    }
    if (!hn::AllFalse(d, any)) return true;
  }
  for (; i < count; ++i, p += sizeof(T)) {
    T bits;
    std::memcpy(&bits, p, sizeof(T));
    if ((bits & exponent) == exponent) return true;
  }
  return false;
}

bool RowHasNonFinite(const std::byte* row, Element element, std::size_t columns) {
  switch (element) {
    case Element::kFloat32:
      return AnyExponentFull<std::uint32_t>(row, columns, 0x7f800000u);
    case Element::kFloat16:
      return AnyExponentFull<std::uint16_t>(row, columns, std::uint16_t{0x7c00});
    case Element::kBFloat16:
      return AnyExponentFull<std::uint16_t>(row, columns, std::uint16_t{0x7f80});
    case Element::kInt8Rowwise: {
      const Int8Reader reader(row);
      return !std::isfinite(reader.bias) || !std::isfinite(255.0f * reader.scale + reader.bias);
    }
  }
  return false;
}

bool FindNonFinite(const Input& in, std::size_t row_count, std::uint32_t columns) {
  const auto* row = static_cast<const std::byte*>(in.base);
  // Packed rows are one long row; int8 rows have headers between them.
  if (in.element != Element::kInt8Rowwise && in.stride_bytes == RowBytes(in.element, columns)) {
    return RowHasNonFinite(row, in.element, row_count * columns);
  }
  for (std::size_t i = 0; i < row_count; ++i, row += in.stride_bytes) {
    if (RowHasNonFinite(row, in.element, columns)) return true;
  }
  return false;
}

}  // namespace HWY_NAMESPACE
}  // namespace embla::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace embla::kernels {
HWY_EXPORT(ConvertAll);
HWY_EXPORT(FindNonFinite);

void Convert(const Input& in, const Output& out, std::size_t row_count, std::uint32_t columns) {
  if (in.element != out.element) {
    HWY_DYNAMIC_DISPATCH(ConvertAll)(in, out, row_count, columns);
    return;
  }
  const auto* source = static_cast<const std::byte*>(in.base);
  auto* target = static_cast<std::byte*>(out.base);
  for (std::size_t i = 0; i < row_count; ++i) {
    std::memcpy(target, source, RowBytes(in.element, columns));
    source += in.stride_bytes;
    target += out.stride_bytes;
  }
}

bool HasNonFinite(const Input& in, std::size_t row_count, std::uint32_t columns) {
  return HWY_DYNAMIC_DISPATCH(FindNonFinite)(in, row_count, columns);
}

}  // namespace embla::kernels
#endif  // HWY_ONCE
