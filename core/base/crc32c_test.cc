#include "core/base/crc32c.h"

#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"

namespace embla {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Known answers: RFC 3720, B.4, and the usual check string.
TEST(Crc32cValue, KnownAnswers) {
  EXPECT_EQ(Crc32c(Bytes("")), 0u);
  EXPECT_EQ(Crc32c(Bytes("123456789")), 0xe3069283u);
  EXPECT_EQ(Crc32c(Bytes(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(Crc32c(Bytes(std::string(32, '\xff'))), 0x62a8ab43u);
}

TEST(Crc32cValue, LongInputsAgreeToo) {
  std::mt19937 random(2);
  std::vector<std::byte> bytes(20'000);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const std::span<const std::byte> all(bytes);
  for (std::size_t size = 3000; size <= bytes.size(); size += 1 + size / 100) {
    const std::uint32_t seed = static_cast<std::uint32_t>(random());
    EXPECT_EQ(Crc32c(all.first(size), seed), detail::Crc32cPortable(all.first(size), seed)) << size;
  }
}

TEST(Crc32cValue, PiecesAndImplementationsAgree) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(1000);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const std::span<const std::byte> all(bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    const std::uint32_t first = Crc32c(all.first(cut));
    EXPECT_EQ(first, detail::Crc32cPortable(all.first(cut), 0));
    EXPECT_EQ(Crc32c(all.subspan(cut), first), Crc32c(all));
  }
}

}  // namespace
}  // namespace embla
