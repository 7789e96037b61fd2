// The CUDA twin of kernels/lookup.h. Contract of all verbs: launch.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/row_kernels.h"

namespace embla::kernels::cuda {

// kernels::Gather, to any format: output row i = row slots[i], zeros for kNoSlot.
int GatherAsync(const Rows& rows, const std::uint32_t* slots, std::size_t count, const Output& out,
                StreamHandle stream);

// Row slots[i] = packed row i of `in`, bit by bit. kNoSlot is left out; other slots are unique.
// cudaErrorInvalidValue unless in.element == rows.element.
int ScatterAsync(const MutableRows& rows, const std::uint32_t* slots, std::size_t count,
                 const Input& in, StreamHandle stream);

// Bag b has slots[offsets[b]..offsets[b + 1]).
struct DeviceBags {
  const std::uint32_t* slots = nullptr;
  const std::uint32_t* offsets = nullptr;  // count + 1 entries, ascending.
  const float* weights = nullptr;          // Null, or one per slot.
  std::size_t count = 0;                   // Number of bags.
  bool mean = false;  // Divides each sum by its bag's length, as DivideRows does.
};

// kernels::Pool: one launch for all bags. cudaErrorInvalidValue unless out.element == kFloat32.
int PoolAsync(const Rows& rows, const DeviceBags& bags, const Output& out, StreamHandle stream);

// kernels::DivideRows for `count` rows. cudaErrorInvalidValue unless rows.element == kFloat32.
int DivideRowsAsync(const MutableRows& rows, const std::uint32_t* lengths, std::size_t count,
                    StreamHandle stream);

}  // namespace embla::kernels::cuda
