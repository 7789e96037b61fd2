// Counter-based random bits: a function of a key and a column, with no state. Shared by every
// implementation of the kernels, so that placement, batch and threads never change a number.
//
//   row key  = chained SplitMix64 finalisers over (seed, purpose, step, table, row): 64 bits
//   bits(c)  = Mix32(Mix32(c * 0x9e3779b9 + low half of the key) ^ high half): 32 bits per column
// Mix32 is the "lowbias32" permutation. Tested for uniformity in optimizer_step_test.cc and
// initialize_test.cc; not for cryptography. constexpr, so that CUDA code can call it as well.
#pragma once

#include <cstdint>

namespace embla::kernels {

enum class RandomPurpose : std::uint64_t { kInitialize = 1, kRound = 2 };

constexpr std::uint64_t Mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr std::uint32_t Mix32(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// The part of the key that a whole batch shares.
constexpr std::uint64_t BatchKey(RandomPurpose purpose, std::uint64_t seed, std::uint64_t step,
                                 std::uint32_t table_id) {
  return Mix64(Mix64(Mix64(seed ^ static_cast<std::uint64_t>(purpose)) + step) + table_id);
}

constexpr std::uint64_t RowKey(std::uint64_t batch_key, std::int64_t row) {
  return Mix64(batch_key + static_cast<std::uint64_t>(row));
}

constexpr std::uint32_t RandomBits(std::uint64_t row_key, std::uint32_t column) {
  const auto low = static_cast<std::uint32_t>(row_key);
  const auto high = static_cast<std::uint32_t>(row_key >> 32);
  return Mix32(Mix32(column * 0x9e3779b9u + low) ^ high);
}

}  // namespace embla::kernels
