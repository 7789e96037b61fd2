// The CUDA twin of kernels/copy_mean.h. Contract of all verbs: launch.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/row_kernels.h"

namespace embla::kernels::cuda {

inline constexpr std::size_t kCopiesMax = 64;

// Copies of the same rows, on this GPU and on others that it has access to.
struct CopiesOfRows {
  const void* base[kCopiesMax] = {};  // Row 0 of each; multiples of the element's size, as the
  std::size_t stride_bytes = 0;       // stride of all of them is.
  std::uint32_t count = 0;
  std::uint32_t own = 0;  // The copy whose distance from the mean is measured.
  std::uint32_t columns = 0;
  Element element = Element::kFloat32;  // Never kInt8Rowwise.
};

enum class CopyRule : std::uint8_t { kMean, kLargest };

// How far values of one copy were from their means; squares are added in an order that depends on
// the device.
struct CopyDistance {
  double max = 0.0;
  double squares = 0.0;
};
inline constexpr std::size_t kCopyDistances = 4096;

// Row i of `out` = kernels::MeanOfCopies of rows i, as weights (kMean) or step counts (kLargest).
// `out` is no copy. `distances`: null, or kCopyDistances parts of the whole.
//
// Requires: out is aligned as the copies are. cudaErrorInvalidValue unless 1 <= count <=
// kCopiesMax, own < count, out.element is that of the copies (of kLargest, fp32), and there are
// fewer than 2^31 values.
int MeanOfCopiesAsync(const CopiesOfRows& copies, std::size_t row_count, CopyRule rule,
                      const Output& out, CopyDistance* distances, StreamHandle stream);

}  // namespace embla::kernels::cuda
