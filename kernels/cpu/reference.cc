#include "kernels/cpu/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/normal.h"
#include "kernels/random.h"

namespace embla::kernels::reference {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Parameters of a 16-bit format.
struct HalfShape {
  int fraction_bits;
  int smallest_exponent;  // Smallest exponent of normal numbers.
  int largest_exponent;
};
HalfShape ShapeOf(Element element) {
  return element == Element::kFloat16 ? HalfShape{10, -14, 15} : HalfShape{7, -126, 127};
}

double DecodeHalf(std::uint16_t bits, Element element) {
  const HalfShape shape = ShapeOf(element);
  const int fraction = bits & ((1 << shape.fraction_bits) - 1);
  const int exponent = (bits & 0x7fff) >> shape.fraction_bits;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent_max = shape.largest_exponent - shape.smallest_exponent + 2;
  if (exponent == exponent_max) return fraction != 0 ? kNaN : sign * kInfinity;
  const int whole = exponent == 0 ? fraction : fraction + (1 << shape.fraction_bits);
  return sign * std::ldexp(whole, std::max(exponent, 1) - 1 + shape.smallest_exponent -
                                      shape.fraction_bits);
}

// The distance of neighbours of the format around `value`.
double Quantum(double value, Element element) {
  const HalfShape shape = ShapeOf(element);
  const int exponent = value == 0.0 ? shape.smallest_exponent : std::ilogb(value);
  return std::ldexp(1.0, std::max(exponent, shape.smallest_exponent) - shape.fraction_bits);
}

// The bits of sign and whole * quantum, a number of the format or the first beyond.
std::uint16_t EncodeHalf(bool negative, double whole, double quantum, Element element) {
  const HalfShape shape = ShapeOf(element);
  const std::uint16_t sign = negative ? 0x8000 : 0;
  const double value = whole * quantum;
  const std::uint16_t infinity = (shape.largest_exponent - shape.smallest_exponent + 2)
                                 << shape.fraction_bits;
  if (value >= std::ldexp(1.0, shape.largest_exponent + 1)) return sign | infinity;
  const double smallest = std::ldexp(1.0, shape.smallest_exponent - shape.fraction_bits);
  if (value < std::ldexp(1.0, shape.smallest_exponent)) {
    return sign | static_cast<std::uint16_t>(value / smallest);
  }
  const int exponent = std::ilogb(value);
  const double fraction = value / std::ldexp(1.0, exponent - shape.fraction_bits);
  const int biased = exponent - shape.smallest_exponent + 1;
  const int low = static_cast<int>(fraction) - (1 << shape.fraction_bits);
  return sign | static_cast<std::uint16_t>((biased << shape.fraction_bits) + low);
}

std::uint16_t NonFiniteHalf(float value, Element element) {
  const std::uint16_t infinity = element == Element::kFloat16 ? 0x7c00 : 0x7f80;
  const std::uint16_t quiet = std::isnan(value) ? (element == Element::kFloat16 ? 0x200 : 0x40) : 0;
  return (std::signbit(value) ? 0x8000 : 0) | infinity | quiet;
}

std::uint16_t RoundNearest(float value, Element element) {
  if (!std::isfinite(value)) return NonFiniteHalf(value, element);
  const double magnitude = std::fabs(static_cast<double>(value));
  const double quantum = Quantum(magnitude, element);
  return EncodeHalf(std::signbit(value), std::nearbyint(magnitude / quantum), quantum, element);
}

void EncodeInt8(std::span<const float> values, std::byte* row) {
  float lowest = values.empty() ? 0.0f : values[0];
  float highest = lowest;
  bool finite = true;
  for (const float v : values) {
    lowest = std::min(lowest, v);
    highest = std::max(highest, v);
    finite = finite && std::isfinite(v);
  }
  float bias = lowest + 0.0f;
  float scale = (highest - bias) / 255.0f;
  if (!finite || !std::isfinite(highest - bias)) {
    scale = bias = kNaN;
  } else if (scale < std::numeric_limits<float>::min()) {
    scale = 0.0f;
  }
  std::memcpy(row, &scale, 4);
  std::memcpy(row + 4, &bias, 4);
  for (std::size_t c = 0; c < values.size(); ++c) {
    const float steps = scale > 0.0f ? (values[c] - bias) * (1.0f / scale) : 0.0f;
    row[kInt8RowHeaderBytes + c] =
        static_cast<std::byte>(std::lrint(std::clamp(steps, 0.0f, 255.0f)));
  }
}

const std::byte* At(const void* base, std::size_t offset) {
  return static_cast<const std::byte*>(base) + offset;
}
std::byte* At(void* base, std::size_t offset) { return static_cast<std::byte*>(base) + offset; }

float Clipped(float g, float clip) {
  if (clip > 0.0f && g > clip) return clip;
  if (clip > 0.0f && g < -clip) return -clip;
  return g;
}

}  // namespace

float Decode(const void* row, Element element, std::size_t column) {
  const auto* const p = static_cast<const std::byte*>(row);
  if (element == Element::kFloat32) {
    float value;
    std::memcpy(&value, p + 4 * column, 4);
    return value;
  }
  if (element == Element::kInt8Rowwise) {
    const float code = std::to_integer<int>(p[kInt8RowHeaderBytes + column]);
    return code * Decode(row, Element::kFloat32, 0) + Decode(row, Element::kFloat32, 1);
  }
  std::uint16_t half;
  std::memcpy(&half, p + 2 * column, 2);
  return static_cast<float>(DecodeHalf(half, element));
}

void EncodeRow(std::span<const float> values, Element element, void* row) {
  auto* const p = static_cast<std::byte*>(row);
  if (element == Element::kInt8Rowwise) return EncodeInt8(values, p);
  for (std::size_t c = 0; c < values.size(); ++c) {
    if (element == Element::kFloat32) {
      std::memcpy(p + 4 * c, &values[c], 4);
      continue;
    }
    const std::uint16_t half = RoundNearest(values[c], element);
    std::memcpy(p + 2 * c, &half, 2);
  }
}

std::uint16_t RoundStochastic(float value, Element element, std::uint32_t random) {
  if (!std::isfinite(value)) return NonFiniteHalf(value, element);
  const double magnitude = std::fabs(static_cast<double>(value));
  const double quantum = Quantum(magnitude, element);
  const double whole = std::floor(magnitude / quantum);
  const double fraction = magnitude / quantum - whole;
  bool up = fraction * 65536.0 + (random >> 16) >= 65536.0;
  if (element == Element::kFloat16) {
    up = magnitude >= std::ldexp(1.0, -14) ? fraction * 8192.0 + (random >> 19) >= 8192.0
                                           : (random >> 8) * 0x1p-24 < fraction;
  }
  return EncodeHalf(std::signbit(value), whole + (up ? 1.0 : 0.0), quantum, element);
}

void Gather(const Rows& rows, std::span<const std::uint32_t> slots, const Output& out) {
  std::vector<float> values(rows.columns);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    for (std::size_t c = 0; c < values.size(); ++c) {
      values[c] = slots[i] == kNoSlot
                      ? 0.0f
                      : Decode(At(rows.base, slots[i] * rows.stride_bytes), rows.element, c);
    }
    EncodeRow(values, out.element, At(out.base, i * out.stride_bytes));
  }
}

void Pool(const Rows& rows, const Bags& bags, const Output& out) {
  std::size_t begin = 0;
  for (std::size_t b = 0; b < bags.lengths.size(); ++b) {
    std::vector<float> sum(rows.columns, 0.0f);
    for (std::size_t i = begin; i < begin + bags.lengths[b]; ++i) {
      if (bags.slots[i] == kNoSlot) continue;
      const void* const row = At(rows.base, bags.slots[i] * rows.stride_bytes);
      for (std::size_t c = 0; c < rows.columns; ++c) {
        const float value = Decode(row, rows.element, c);
        sum[c] += bags.weights == nullptr ? value : bags.weights[i] * value;
      }
    }
    EncodeRow(sum, Element::kFloat32, At(out.base, b * out.stride_bytes));
    begin += bags.lengths[b];
  }
}

void DivideRows(const MutableRows& rows, std::span<const std::uint32_t> lengths) {
  std::vector<float> values(rows.columns);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    void* const row = At(rows.base, i * rows.stride_bytes);
    for (std::size_t c = 0; c < values.size(); ++c) {
      const auto length = static_cast<float>(lengths[i]);
      values[c] = lengths[i] == 0 ? 0.0f : Decode(row, Element::kFloat32, c) / length;
    }
    EncodeRow(values, Element::kFloat32, row);
  }
}

void Convert(const Input& in, const Output& out, std::size_t row_count, std::uint32_t columns) {
  std::vector<float> values(columns);
  for (std::size_t i = 0; i < row_count; ++i) {
    const std::byte* const row = At(in.base, i * in.stride_bytes);
    for (std::size_t c = 0; c < columns; ++c) values[c] = Decode(row, in.element, c);
    EncodeRow(values, out.element, At(out.base, i * out.stride_bytes));
  }
}

bool HasNonFinite(const Input& in, std::size_t row_count, std::uint32_t columns) {
  for (std::size_t i = 0; i < row_count; ++i) {
    const std::byte* const row = At(in.base, i * in.stride_bytes);
    for (std::size_t c = 0; c < columns; ++c) {
      if (!std::isfinite(Decode(row, in.element, c))) return true;
    }
  }
  return false;
}

void GroupIds(std::span<const std::int64_t> ids, Grouping& grouping) {
  grouping.positions.resize(ids.size());
  std::iota(grouping.positions.begin(), grouping.positions.end(), 0u);
  std::stable_sort(grouping.positions.begin(), grouping.positions.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return ids[a] < ids[b]; });
  grouping.ids.clear();
  grouping.offsets.clear();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0 && ids[grouping.positions[i]] == ids[grouping.positions[i - 1]]) continue;
    grouping.ids.push_back(ids[grouping.positions[i]]);
    grouping.offsets.push_back(static_cast<std::uint32_t>(i));
  }
  grouping.offsets.push_back(static_cast<std::uint32_t>(ids.size()));
}

void SumSegments(const Grouping& grouping, const Gradients& gradients, std::size_t first,
                 std::size_t last, std::span<float> sums, std::size_t stride) {
  for (std::size_t i = first; i < last; ++i) {
    for (std::size_t c = 0; c < gradients.columns; ++c) {
      float total = 0.0f;
      float piece = 0.0f;
      std::size_t in_piece = 0;
      for (std::size_t j = grouping.offsets[i]; j < grouping.offsets[i + 1]; ++j) {
        const std::uint32_t p = grouping.positions[j];
        const std::size_t row = gradients.row_of == nullptr ? p : gradients.row_of[p];
        float g = Clipped(Decode(At(gradients.rows.base, row * gradients.rows.stride_bytes),
                                 gradients.rows.element, c),
                          gradients.clip);
        if (gradients.factors != nullptr) g = g * gradients.factors[p];
        piece += g;
        if (++in_piece < kCombinePiece) continue;
        total += piece;
        piece = 0.0f;
        in_piece = 0;
      }
      sums[(i - first) * stride + c] = total + piece;
    }
  }
}

void RowSumSquares(const Rows& rows, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::array<float, 16> lanes{};
    for (std::size_t c = 0; c < rows.columns; ++c) {
      const float v = Decode(At(rows.base, i * rows.stride_bytes), Element::kFloat32, c);
      lanes[c % 16] += v * v;
    }
    for (std::size_t half = 8; half > 0; half /= 2) {
      for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    out[i] = lanes[0];
  }
}

void Initialize(const InitParameters& parameters, const InitRows& rows, std::size_t first_slot,
                std::size_t row_count) {
  std::vector<float> values(rows.weights.columns);
  const std::uint64_t batch_key = BatchKey(RandomPurpose::kInitialize, parameters.seed, 0, 0);
  const float a = parameters.a;
  const float b = parameters.b;
  for (std::size_t slot = first_slot; slot < first_slot + row_count; ++slot) {
    const std::uint64_t key = RowKey(batch_key, rows.first_row + static_cast<std::int64_t>(slot));
    for (std::size_t c = 0; c < values.size(); ++c) {
      const std::uint32_t bits = RandomBits(key, rows.column_begin + static_cast<std::uint32_t>(c));
      values[c] = a;
      if (parameters.rule == InitRule::kUniform) {
        values[c] = a + (b - a) * (static_cast<float>(bits >> 8) * 0x1p-24f);
        if (a < b) values[c] = std::min(values[c], std::nextafter(b, -kInfinity));
      } else if (parameters.rule == InitRule::kNormal) {
        values[c] = static_cast<float>(a + b * StandardNormal(bits));
      }
    }
    EncodeRow(values, rows.weights.element,
              At(rows.weights.base, slot * rows.weights.stride_bytes));
  }
}

}  // namespace embla::kernels::reference
