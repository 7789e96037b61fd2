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
__attribute__((target("sse4.2"))) std::uint32_t Crc32cSse42(std::span<const std::byte> bytes,
                                                            std::uint32_t seed) {
  std::uint64_t crc = ~seed;
  const std::byte* at = bytes.data();
  const std::byte* const end = at + bytes.size();
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
