// A function for each PTX instruction that translate.py knows, on the bits of registers. Types are
// those of the instruction.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <type_traits>

#include "tools/ptx_run/machine.h"

namespace embla::ptx_run {

enum class Half : std::uint16_t {};
enum class BFloat16 : std::uint16_t {};

template <std::size_t kBytes>
using BitsOf = std::conditional_t<
    kBytes == 1, std::uint8_t,
    std::conditional_t<kBytes == 2, std::uint16_t,
                       std::conditional_t<kBytes == 4, std::uint32_t, std::uint64_t>>>;
template <typename T>
using RawOf = BitsOf<sizeof(T)>;

template <typename T>
RawOf<T> Raw(T value) {
  return std::bit_cast<RawOf<T>>(value);
}
// The low bits of a register.
template <typename T>
T As(std::uint64_t bits) {
  return std::bit_cast<T>(static_cast<RawOf<T>>(bits));
}
// The bits of a register that nobody has written.
template <typename Register>
inline constexpr auto Unset = static_cast<Register>(0xa7a7a7a7a7a7a7a7u);
template <>
inline constexpr bool Unset<bool> = false;

inline std::uint64_t AddressOf(const unsigned char* p) {
  return reinterpret_cast<std::uintptr_t>(p);
}

// Arithmetic of integers wraps.
template <typename T>
RawOf<T> Add(std::uint64_t a, std::uint64_t b) {
  if constexpr (std::is_floating_point_v<T>) return Raw<T>(As<T>(a) + As<T>(b));
  return static_cast<RawOf<T>>(a + b);
}
template <typename T>
RawOf<T> Sub(std::uint64_t a, std::uint64_t b) {
  if constexpr (std::is_floating_point_v<T>) return Raw<T>(As<T>(a) - As<T>(b));
  return static_cast<RawOf<T>>(a - b);
}
template <typename T>
RawOf<T> Mul(std::uint64_t a, std::uint64_t b) {
  if constexpr (std::is_floating_point_v<T>) return Raw<T>(As<T>(a) * As<T>(b));
  return static_cast<RawOf<T>>(a * b);
}
template <typename T>
RawOf<T> Div(std::uint64_t a, std::uint64_t b) {
  return Raw(static_cast<T>(As<T>(a) / As<T>(b)));
}
template <typename T>
BitsOf<2 * sizeof(T)> MulWide(std::uint64_t a, std::uint64_t b) {
  return static_cast<BitsOf<2 * sizeof(T)>>(std::int64_t{As<T>(a)} * std::int64_t{As<T>(b)});
}
template <typename T>
T MulHigh(std::uint64_t a, std::uint64_t b) {
  static_assert(std::is_unsigned_v<T>);
  return static_cast<T>(static_cast<unsigned __int128>(As<T>(a)) * As<T>(b) >> 8 * sizeof(T));
}
template <typename T>
RawOf<T> Neg(std::uint64_t a) {
  return Raw(static_cast<T>(-As<T>(a)));
}
// NaN gives way to numbers; -0 is below +0.
template <typename T>
RawOf<T> Min(std::uint64_t a, std::uint64_t b) {
  const T x = As<T>(a), y = As<T>(b);
  if constexpr (std::is_floating_point_v<T>) {
    if (x == y) return std::signbit(x) ? Raw(x) : Raw(y);
    return Raw(std::fmin(x, y));
  }
  return Raw(x < y ? x : y);
}
template <typename T>
RawOf<T> Max(std::uint64_t a, std::uint64_t b) {
  const T x = As<T>(a), y = As<T>(b);
  if constexpr (std::is_floating_point_v<T>) {
    if (x == y) return std::signbit(x) ? Raw(y) : Raw(x);
    return Raw(std::fmax(x, y));
  }
  return Raw(x < y ? y : x);
}
template <typename T>
RawOf<T> Sqrt(std::uint64_t a) {
  return Raw(std::sqrt(As<T>(a)));
}
template <typename T>
RawOf<T> Rcp(std::uint64_t a) {
  return Raw(T{1} / As<T>(a));
}

// Amounts past the register's width give what shifting bit by bit would.
template <typename T>
RawOf<T> Shl(std::uint64_t a, std::uint32_t amount) {
  return amount >= 8 * sizeof(T) ? 0 : static_cast<RawOf<T>>(a << amount);
}
template <typename T>
RawOf<T> Shr(std::uint64_t a, std::uint32_t amount) {
  constexpr std::uint32_t kLast = 8 * sizeof(T) - 1;
  if (amount > kLast) return std::is_signed_v<T> ? Raw(static_cast<T>(As<T>(a) >> kLast)) : 0;
  return Raw(static_cast<T>(As<T>(a) >> amount));
}

// Comparisons with NaN are false, except those whose name ends in u, which are true.
template <typename T, typename Operator, bool kUnordered>
bool Compare(std::uint64_t a, std::uint64_t b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(As<T>(a)) || std::isnan(As<T>(b))) return kUnordered;
  }
  return Operator()(As<T>(a), As<T>(b));
}

// From S to T, to the nearest. Every NaN becomes the one that the hardware gives.
template <typename T, typename S>
RawOf<T> Convert(std::uint64_t a) {
  if constexpr (std::is_same_v<S, Half>) {
    return Raw(static_cast<T>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(a))));
  } else if constexpr (std::is_same_v<T, Half>) {
    const float value = As<float>(a);
    return std::isnan(value) ? 0x7fff : Raw(static_cast<_Float16>(value));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    const auto bits = static_cast<std::uint32_t>(a);
    return std::isnan(As<float>(a)) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  } else {
    return Raw(static_cast<T>(As<S>(a)));
  }
}
// Towards zero, to the nearest value that T has; NaN becomes 0.
template <typename T>
RawOf<T> Truncate(std::uint64_t a) {
  const float whole = std::trunc(As<float>(a));
  if constexpr (std::is_floating_point_v<T>) {
    return Raw<T>(whole);
  } else {
    if (!(whole > 0.0f)) return 0;
    constexpr T kMax = std::numeric_limits<T>::max();
    return whole >= std::ldexp(1.0f, 8 * sizeof(T)) ? kMax : static_cast<T>(whole);
  }
}

// Four bytes of the eight of b and a, as the digits of `selector` say.
inline std::uint32_t Permute(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint32_t digit = selector >> 4 * i & 15;
    std::uint32_t byte = bytes >> 8 * (digit & 7) & 255;
    if ((digit & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
    result |= byte << 8 * i;
  }
  return result;
}
// b with `length` bits of a at `position`.
inline std::uint32_t InsertBits(std::uint32_t a, std::uint32_t b, std::uint32_t position,
                                std::uint32_t length) {
  const std::uint64_t ones = length >= 32 ? 0xffffffffu : (std::uint64_t{1} << length) - 1;
  const std::uint64_t mask = position >= 32 ? 0 : ones << position;
  return static_cast<std::uint32_t>((b & ~mask) | (std::uint64_t{a} << (position & 31) & mask));
}
inline std::uint32_t ReverseBits(std::uint32_t a) {
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 32; ++i) result |= (a >> i & 1) << (31 - i);
  return result;
}
inline std::uint32_t ShiftToHighestBit(std::uint32_t a) {
  return a == 0 ? 0xffffffffu : static_cast<std::uint32_t>(std::countl_zero(a));
}

enum ShuffleKind : std::uint8_t { kIndex, kButterfly };
// `clamp` holds the width of the segments that lanes stay in (PTX ISA, shfl.sync).
template <ShuffleKind kKind>
std::uint32_t Shuffle(std::uint32_t value, std::uint32_t source, std::uint32_t clamp,
                      std::uint32_t mask, bool& found) {
  const std::uint32_t lane = Tid() % 32;
  const std::uint32_t segment = clamp >> 8 & 31;
  const std::uint32_t first = lane & segment;
  const std::uint32_t last = first | (clamp & 31 & ~segment);
  const std::uint32_t wanted =
      kKind == kIndex ? first | (source & 31 & ~segment) : lane ^ (source & 31);
  found = wanted <= last;
  return static_cast<std::uint32_t>(MeetLanes(mask, value, found ? wanted : lane));
}

template <typename T, int kCount>
struct Vector {
  T value[kCount];
  T operator[](int i) const { return value[i]; }
};

template <typename T, int kCount>
Vector<T, kCount> Read(std::uint64_t address) {
  Vector<T, kCount> vector;
  std::memcpy(&vector, reinterpret_cast<const void*>(address), sizeof(vector));
  return vector;
}
template <typename T, int kCount>
Vector<T, kCount> LoadParameter(std::uint64_t address) {
  return Read<T, kCount>(address);
}
template <typename T, int kCount>
Vector<T, kCount> Load(std::uint64_t address) {
  CheckAccess(address, sizeof(T) * kCount, Access::kRead);
  return Read<T, kCount>(address);
}
template <typename T, int kCount>
Vector<T, kCount> LoadConstant(std::uint64_t address) {
  CheckAccess(address, sizeof(T) * kCount, Access::kReadConstant);
  return Read<T, kCount>(address);
}
template <typename T, int kCount>
void Store(std::uint64_t address, const Vector<T, kCount>& vector) {
  CheckAccess(address, sizeof(T) * kCount, Access::kWrite);
  std::memcpy(reinterpret_cast<void*>(address), &vector, sizeof(vector));
}

enum AtomicKind : std::uint8_t { kAdd, kMax, kOr };
template <typename T, AtomicKind kKind>
T Atomic(std::uint64_t address, T value) {
  CheckAccess(address, sizeof(T), Access::kAtomic);
  const T before = Read<T, 1>(address)[0];
  T after = before | value;
  if (kKind == kAdd) after = before + value;
  if (kKind == kMax) after = before < value ? value : before;
  std::memcpy(reinterpret_cast<void*>(address), &after, sizeof(T));
  return before;
}
}  // namespace embla::ptx_run
