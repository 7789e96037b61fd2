// The CUDA twin of Gather, Pool and Step: the same bits as the CPU kernels (Pool and the steps
// round every operation; the library is built with --fmad=false).
//
// Pointers inside Rows, Output, StepRows and the batches are device memory. Every verb queues one
// kernel on `stream` and returns cudaSuccess (0) or the error code of the launch; memory must stay
// until the stream has passed it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/optimizer_step.h"
#include "kernels/row_kernels.h"

namespace embla::kernels::cuda {

// A cudaStream_t, so that this header needs no CUDA.
using StreamHandle = void*;

// 0 where there is no device or no driver.
int DeviceCount();
// The text of an error code.
const char* ErrorText(int error);

// kernels::Gather to fp32, fp16 or bf16; kInt8Rowwise gives cudaErrorInvalidValue.
int GatherAsync(const Rows& rows, const std::uint32_t* slots, std::size_t count, const Output& out,
                StreamHandle stream);

// kernels::Pool. Bag b has slots[offsets[b]..offsets[b + 1]); weights may be null.
struct DeviceBags {
  const std::uint32_t* slots = nullptr;
  const std::uint32_t* offsets = nullptr;  // count + 1 entries.
  const float* weights = nullptr;
  std::size_t count = 0;
};
int PoolAsync(const Rows& rows, const DeviceBags& bags, const Output& out, StreamHandle stream);

// kernels::Step for kSgd and kRowwiseAdagrad; other rules give cudaErrorInvalidValue.
struct DeviceStepBatch {
  const std::uint32_t* slots = nullptr;  // Unique, no kNoSlot.
  std::size_t count = 0;
  const float* gradients = nullptr;
  std::size_t stride = 0;  // In floats.
  const float* row_sum_squares = nullptr;
  std::uint64_t step = 0;
};
int StepAsync(const StepParameters& parameters, const StepRows& rows, const DeviceStepBatch& batch,
              StreamHandle stream);

}  // namespace embla::kernels::cuda
