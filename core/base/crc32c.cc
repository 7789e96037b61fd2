#include "core/base/crc32c.h"

#include <array>
#include <cstring>

namespace embla {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // Reflected.

// kTables[k][b]: what byte b does to the checksum when k more bytes follow in its group of eight.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;
constexpr Tables MakeTables() {
  Tables tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][b] = crc;
  }
  for (std::uint32_t k = 1; k < 8; ++k) {
    for (std::uint32_t b = 0; b < 256; ++b) {
      const std::uint32_t before = tables[k - 1][b];
      tables[k][b] = before >> 8 ^ tables[0][before & 0xff];
    }
  }
  return tables;
}
constexpr Tables kTables = MakeTables();

std::uint64_t Load64(const std::byte* at) {
  std::uint64_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

#if defined(__x86_64__)
// The instruction takes three cycles, and one can begin every cycle: three stretches of long input
// go through it side by side. The checksum is linear (but for the inversions at its ends), so that
// of neighbouring stretches is the first one's, shifted by the zeros that stand for the second, xor
// the second's.
constexpr std::size_t kStretchBytes = 1024;

// Maps a checksum to the one after kStretchBytes zeros, byte by byte.
class ZerosShift {
 public:
  ZerosShift() {
    for (std::uint32_t k = 0; k < 4; ++k) {
      std::array<std::uint32_t, 8> of_bit;
      for (std::uint32_t bit = 0; bit < 8; ++bit) {
        std::uint32_t crc = 1u << (8 * k + bit);
        for (std::size_t i = 0; i < kStretchBytes; ++i) crc = crc >> 8 ^ kTables[0][crc & 0xff];
        of_bit[bit] = crc;
      }
      for (std::uint32_t byte = 0; byte < 256; ++byte) {
        for (std::uint32_t bit = 0; bit < 8; ++bit) {
          if ((byte >> bit & 1) != 0) table_[k][byte] ^= of_bit[bit];
        }
      }
    }
  }
  std::uint64_t operator()(std::uint64_t crc) const {
    return table_[0][crc & 0xff] ^ table_[1][crc >> 8 & 0xff] ^ table_[2][crc >> 16 & 0xff] ^
           table_[3][crc >> 24 & 0xff];
  }

 private:
  std::array<std::array<std::uint32_t, 256>, 4> table_{};
};

__attribute__((target("sse4.2"))) std::uint64_t CrcOfStretches(std::uint64_t crc,
                                                               const std::byte* at) {
  static const ZerosShift shift;
  std::uint64_t second = 0;
  std::uint64_t third = 0;
  for (std::size_t i = 0; i < kStretchBytes; i += 8) {
    crc = __builtin_ia32_crc32di(crc, Load64(at + i));
    second = __builtin_ia32_crc32di(second, Load64(at + kStretchBytes + i));
    third = __builtin_ia32_crc32di(third, Load64(at + 2 * kStretchBytes + i));
  }
  return shift(shift(crc) ^ second) ^ third;
}

__attribute__((target("sse4.2"))) std::uint32_t Crc32cSse42(std::span<const std::byte> bytes,
                                                            std::uint32_t seed) {
  constexpr auto kThreeBytes = static_cast<std::ptrdiff_t>(3 * kStretchBytes);
  std::uint64_t crc = ~seed;
  const std::byte* at = bytes.data();
  const std::byte* const end = at + bytes.size();
  for (; end - at >= kThreeBytes; at += kThreeBytes) crc = CrcOfStretches(crc, at);
  for (; end - at >= 8; at += 8) crc = __builtin_ia32_crc32di(crc, Load64(at));
  auto narrow = static_cast<std::uint32_t>(crc);
  for (; at != end; ++at) {
    narrow = __builtin_ia32_crc32qi(narrow, static_cast<std::uint8_t>(*at));
  }
  return ~narrow;
}
#endif

}  // namespace

namespace detail {

std::uint32_t Crc32cPortable(std::span<const std::byte> bytes, std::uint32_t seed) {
  std::uint32_t crc = ~seed;
  const std::byte* at = bytes.data();
  const std::byte* const end = at + bytes.size();
  for (; end - at >= 8; at += 8) {
    const std::uint64_t group = Load64(at) ^ crc;
    crc = 0;
    for (int k = 0; k < 8; ++k) crc ^= kTables[7 - k][group >> (8 * k) & 0xff];
  }
  for (; at != end; ++at) {
    crc = crc >> 8 ^ kTables[0][(crc ^ static_cast<std::uint32_t>(*at)) & 0xff];
  }
  return ~crc;
}

}  // namespace detail

std::uint32_t Crc32c(std::span<const std::byte> bytes, std::uint32_t seed) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return Crc32cSse42(bytes, seed);
#endif
  return detail::Crc32cPortable(bytes, seed);
}

}  // namespace embla
