// CRC-32C (Castagnoli), the checksum of every format of ours: polynomial 0x1edc6f41, reflected,
// initial value and final xor 0xffffffff. Crc32c("123456789") == 0xe3069283.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace embla {

// The checksum of `bytes`; with the checksum of what came before as `seed`, of the whole.
std::uint32_t Crc32c(std::span<const std::byte> bytes, std::uint32_t seed = 0);

namespace detail {
// Without the CPU's instruction; for tests and for other machines.
std::uint32_t Crc32cPortable(std::span<const std::byte> bytes, std::uint32_t seed);
}  // namespace detail

}  // namespace embla
