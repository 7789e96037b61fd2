// Shared by the kernels' tests: the dims that matter, rows with odd values at odd addresses, and a
// comparison of bits that lets any NaN equal any NaN.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/reference.h"
#include "kernels/cpu/testing/kernel_set.h"
#include "kernels/row_kernels.h"

namespace embla::kernels {

inline constexpr std::uint32_t kTestDims[] = {1, 3, 7, 8, 15, 16, 31, 64, 127, 1024, 2048};
inline constexpr Element kWeightElements[] = {Element::kFloat32, Element::kFloat16,
                                              Element::kBFloat16};
inline constexpr Element kWireElements[] = {Element::kFloat32, Element::kFloat16,
                                            Element::kBFloat16, Element::kInt8Rowwise};

// Random bytes of a test: the seed is printed when the test fails.
class TestRandom {
 public:
  explicit TestRandom(std::uint64_t seed) : trace_(__FILE__, __LINE__, seed), engine_(seed) {}

  std::uint64_t Below(std::uint64_t n) { return engine_() % n; }
  float Unit() { return static_cast<float>(engine_() >> 40) * 0x1p-24f; }
  // Mostly in (-4, 4), some tiny, some halfway between fp16 or bf16 numbers; no NaN.
  float Value() {
    const std::uint64_t kind = Below(16);
    const float sign = Below(2) == 0 ? -1.0f : 1.0f;
    if (kind == 0) return sign * 0.0f;
    if (kind == 1) return sign * std::ldexp(Unit(), -static_cast<int>(Below(30)));
    if (kind == 2) return sign * (1.0f + static_cast<float>(Below(4096)) * 0x1p-12f);
    return sign * Unit() * 4.0f;
  }
  std::vector<float> Values(std::size_t n) {
    std::vector<float> values(n);
    for (float& v : values) v = Value();
    return values;
  }
  // Slots below `rows`, now and then kNoSlot.
  std::vector<std::uint32_t> Slots(std::size_t n, std::uint32_t rows) {
    std::vector<std::uint32_t> slots(n);
    for (std::uint32_t& slot : slots) {
      slot = Below(10) == 0 ? kNoSlot : static_cast<std::uint32_t>(Below(rows));
    }
    return slots;
  }

 private:
  testing::ScopedTrace trace_;
  std::mt19937_64 engine_;
};

// Bytes at an address that is `shift` past an aligned one.
class ShiftedBytes {
 public:
  ShiftedBytes(std::size_t size, std::size_t shift) : size_(size), shift_(shift) {
    memory_.assign((size + shift) / sizeof(double) + 2, 0.0);
  }
  std::byte* data() { return reinterpret_cast<std::byte*>(memory_.data()) + shift_; }
  const std::byte* data() const {
    return reinterpret_cast<const std::byte*>(memory_.data()) + shift_;
  }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_;
  std::size_t shift_;
  std::vector<double> memory_;
};

// A table of `rows` random rows, one of them with NaN and infinities.
class TestTable {
 public:
  TestTable(TestRandom& random, Element element, std::uint32_t rows, std::uint32_t columns)
      : stride_((ElementBytes(element) * columns + 15) / 16 * 16),
        columns_(columns),
        element_(element),
        memory_(rows * stride_, 0) {
    for (std::uint32_t r = 0; r < rows; ++r) {
      std::vector<float> values = random.Values(columns);
      if (r == 1) {
        values[0] = std::numeric_limits<float>::quiet_NaN();
        values[columns / 2] = std::numeric_limits<float>::infinity();
        values[columns - 1] = -std::numeric_limits<float>::infinity();
      }
      reference::EncodeRow(values, element, memory_.data() + r * stride_);
    }
  }
  Rows rows() const { return {memory_.data(), stride_, columns_, element_}; }
  MutableRows mutable_rows() { return {memory_.data(), stride_, columns_, element_}; }
  std::span<const std::byte> bytes() const { return {memory_.data(), memory_.size()}; }

 private:
  std::size_t stride_;
  std::uint32_t columns_;
  Element element_;
  ShiftedBytes memory_;
};

template <typename Bits>
bool SameBits(const std::byte* a, const std::byte* b, Bits infinity) {
  Bits x;
  Bits y;
  std::memcpy(&x, a, sizeof(Bits));
  std::memcpy(&y, b, sizeof(Bits));
  const Bits magnitude = std::numeric_limits<Bits>::max() >> 1;
  return x == y || ((x & magnitude) > infinity && (y & magnitude) > infinity);
}

// Whether two packed rows hold the same bits, any NaN equal to any other.
inline bool SameRow(const std::byte* a, const std::byte* b, Element element, std::size_t columns) {
  if (element == Element::kInt8Rowwise) {
    return SameBits<std::uint32_t>(a, b, 0x7f800000u) &&
           SameBits<std::uint32_t>(a + 4, b + 4, 0x7f800000u) &&
           std::memcmp(a + kInt8RowHeaderBytes, b + kInt8RowHeaderBytes, columns) == 0;
  }
  for (std::size_t c = 0; c < columns; ++c) {
    const std::size_t at = c * ElementBytes(element);
    const bool same = element == Element::kFloat32
                          ? SameBits<std::uint32_t>(a + at, b + at, 0x7f800000u)
                          : SameBits<std::uint16_t>(a + at, b + at,
                                                    element == Element::kFloat16 ? 0x7c00 : 0x7f80);
    if (!same) return false;
  }
  return true;
}

inline testing::AssertionResult SameRows(const ShiftedBytes& got, const ShiftedBytes& want,
                                         const Output& shape, std::size_t columns) {
  for (std::size_t r = 0; r * shape.stride_bytes < want.size(); ++r) {
    const std::size_t at = r * shape.stride_bytes;
    if (SameRow(got.data() + at, want.data() + at, shape.element, columns)) continue;
    for (std::size_t c = 0; c < columns; ++c) {
      const float g = reference::Decode(got.data() + at, shape.element, c);
      const float w = reference::Decode(want.data() + at, shape.element, c);
      if (SameBits<std::uint32_t>(reinterpret_cast<const std::byte*>(&g),
                                  reinterpret_cast<const std::byte*>(&w), 0x7f800000u)) {
        continue;
      }
      return testing::AssertionFailure()
             << "row " << r << " column " << c << ": got " << g << ", want " << w;
    }
    return testing::AssertionFailure() << "row " << r << " differs in its codes";
  }
  return testing::AssertionSuccess();
}

}  // namespace embla::kernels
