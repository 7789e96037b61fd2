// Plain arrays of floats on the device. Contract of all verbs: launch.h.
#pragma once

#include <cstddef>

#include "kernels/cuda/launch.h"

namespace embla::kernels::cuda {

int FillAsync(float* data, std::size_t count, float value, StreamHandle stream);

// out[i] = inputs[0][i] + inputs[1][i] + ..., from the left. `inputs` is host memory; the arrays
// may be on other GPUs that this one has access to, and `out` may be one of them.
// cudaErrorInvalidValue unless 1 <= input_count <= kSumInputsMax.
inline constexpr std::size_t kSumInputsMax = 64;
int SumInOrderAsync(const float* const* inputs, std::size_t input_count, std::size_t count,
                    float* out, StreamHandle stream);

}  // namespace embla::kernels::cuda
