// The CUDA twin of kernels/convert.h. Contract of all verbs: launch.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/row_kernels.h"

namespace embla::kernels::cuda {

// Output row i = input row i; any of the four formats to any of them. No overlap.
int ConvertAsync(const Input& in, const Output& out, std::size_t row_count, std::uint32_t columns,
                 StreamHandle stream);

}  // namespace embla::kernels::cuda
