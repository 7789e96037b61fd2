// Sorting and selecting on the device: CUB's algorithms (sort.cu), which an emulated device does
// with the standard library's (emulated/sort.cc). Contract: launch.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"

namespace embla::kernels::cuda {

// Keys in [0, key_max] with a value each, and where they go sorted. All four differ.
struct SortPairs {
  const std::uint32_t* keys = nullptr;
  const std::uint32_t* values = nullptr;
  std::uint32_t* keys_out = nullptr;
  std::uint32_t* values_out = nullptr;
  std::size_t count = 0;  // Below 2^31.
  std::uint32_t key_max = 0;
};
int SortBytes(std::size_t count, std::size_t* bytes);
// Stable and ascending.
int SortAsync(const SortPairs& pairs, Workspace workspace, StreamHandle stream);

// The i in [0, count) whose flag is not 0, ascending; *index_count is how many there are.
// Requires: count < 2^31.
int FlaggedBytes(std::size_t count, std::size_t* bytes);
int FlaggedAsync(const std::uint8_t* flags, std::size_t count, std::uint32_t* indices,
                 std::uint32_t* index_count, Workspace workspace, StreamHandle stream);

}  // namespace embla::kernels::cuda
