// The ceiling of a GPU's memory: copies, and reads or updates of whole rows at random. Kernels are
// divided by these. Contract of all verbs: kernels/cuda/launch.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"

namespace embla::bench {

// Rows of an array: row s at base + s * row_bytes. base and row_bytes are multiples of 16.
struct DeviceRowArray {
  std::byte* base = nullptr;
  std::size_t row_bytes = 0;
};

// bytes and both addresses are multiples of 16; the arrays do not overlap.
int CopyAsync(const std::byte* from, std::byte* to, std::size_t bytes,
              kernels::cuda::StreamHandle stream);

// out[t] = the XOR of all words that thread t has read, for as many threads as it takes, at most
// kXorOutputs.
inline constexpr std::size_t kXorOutputs = std::size_t{2048} * 256;
int XorRowsAsync(const DeviceRowArray& rows, const std::uint32_t* slots, std::size_t count,
                 std::uint32_t* out, kernels::cuda::StreamHandle stream);

// Adds 1 to every word of the rows. Slots are unique.
int IncrementRowsAsync(const DeviceRowArray& rows, const std::uint32_t* slots, std::size_t count,
                       kernels::cuda::StreamHandle stream);

}  // namespace embla::bench
