// The CUDA twin of kernels/optimizer_step.h, every rule. Contract of all verbs: launch.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/combine.h"
#include "kernels/cuda/launch.h"
#include "kernels/optimizer_step.h"

namespace embla::kernels::cuda {

// kernels::StepBatch on the device.
struct DeviceStepBatch {
  const std::uint32_t* slots = nullptr;  // Unique, no kNoSlot.
  std::size_t count = 0;
  const float* gradients = nullptr;  // Row i at gradients + i * stride, for slots[i].
  std::size_t stride = 0;            // In floats.
  const float* row_sum_squares = nullptr;
  std::uint64_t step = 0;
  // Null, or how many of the `count` rows there are: known to the device only.
  const std::uint32_t* device_count = nullptr;
};

// kernels::Step, under its requirements; cudaErrorInvalidValue where they are not met. rows has
// device pointers.
int StepAsync(const StepParameters& parameters, const StepRows& rows, const DeviceStepBatch& batch,
              StreamHandle stream);

// Sums duplicates and steps each touched row, in two launches and without storing the sums: the
// bits of kernels::SumSegments, then StepAsync. Positions of kNoSlot are left out.
//
// Requires: gradients.columns == rows.weights.columns, and, for kRowwiseAdagrad, == rows.dim;
// partial_sums has PartialSumsBytes(grouping.count, columns). cudaErrorInvalidValue otherwise.
int UpdateAsync(const StepParameters& parameters, const StepRows& rows,
                const DeviceGrouping& grouping, const DeviceGradients& gradients,
                std::uint64_t step, Workspace partial_sums, StreamHandle stream);

// A batch as it came: any number of gradients for a row, in arrival order.
struct DeviceUpdateBatch {
  const std::uint32_t* slots = nullptr;  // By position: below slot_limit, or kNoSlot.
  std::size_t count = 0;                 // How many positions there are.
  std::uint32_t slot_limit = 0;
  DeviceGradients gradients;
  std::uint64_t step = 0;
  std::uint64_t* rows_stepped = nullptr;  // Null, or is added how many rows were touched.
};
// *bytes (host) = what UpdateBatchAsync needs. Needs a device, as sorting does.
int UpdateBatchBytes(std::size_t count, std::uint32_t columns, std::size_t* bytes);
// GroupAsync, then UpdateAsync, under their requirements.
int UpdateBatchAsync(const StepParameters& parameters, const StepRows& rows,
                     const DeviceUpdateBatch& batch, Workspace workspace, StreamHandle stream);

}  // namespace embla::kernels::cuda
