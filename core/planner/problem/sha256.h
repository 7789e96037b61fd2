// SHA-256 (FIPS 180-4): names plans and their inputs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace embla::planner {

class Sha256 {
 public:
  void Add(std::string_view bytes);
  // 64 hexadecimal digits. The object is spent afterwards.
  std::string Finish();

 private:
  void Block(const std::uint8_t* bytes);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> pending_{};
  std::size_t pending_size_ = 0;
  std::uint64_t size_ = 0;
};

}  // namespace embla::planner
