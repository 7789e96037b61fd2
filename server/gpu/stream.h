// A queue of work on one GPU. Everything but Synchronize queues and returns; work runs in the order
// in which it was queued.
//
// Pointers are memory of the stream's device, unless they are named `host`: those are pinned. Both
// stay as they are until Synchronize. Kernels read and write pinned memory, too, at the speed of
// the link. The kernels are those of kernels/cuda, with the meaning they have there.
//
// Thread safety: one thread at a time; several streams of a device may be used at once.
// Errors: those of Device, by any call, also for work that was queued earlier.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/lookup.h"
#include "kernels/cuda/optimizer_step.h"
#include "kernels/initialize.h"
#include "kernels/optimizer_step.h"
#include "kernels/row_kernels.h"

namespace embla::zch {
struct SlotMapOptions;
}
namespace embla::zch::cuda {
struct DeviceAnswer;
struct DeviceBatch;
struct DeviceGroups;
struct DeviceSweep;
struct DeviceSweptIds;
}  // namespace embla::zch::cuda

namespace embla::gpu {

class Stream {
 public:
  virtual ~Stream() = default;

  virtual absl::Status CopyToDevice(void* to, const void* host, std::size_t bytes) = 0;
  virtual absl::Status CopyToHost(void* host, const void* from, std::size_t bytes) = 0;

  virtual absl::Status Fill(float* data, std::size_t count, float value) = 0;
  virtual absl::Status Initialize(const kernels::InitParameters& parameters,
                                  const kernels::InitRows& rows, std::size_t first_slot,
                                  std::size_t row_count) = 0;
  // Slot slots[i] becomes row ids[i] of the table; rows.first_row is not read.
  virtual absl::Status InitializeIds(const kernels::InitParameters& parameters,
                                     const kernels::InitRows& rows, const std::uint32_t* slots,
                                     const std::int64_t* ids, std::size_t count) = 0;
  virtual absl::Status Gather(const kernels::Rows& rows, const std::uint32_t* slots,
                              std::size_t count, const kernels::Output& out) = 0;
  // Row slots[i] becomes input row i, which has the same element; slots are unique. A stride of 0
  // gives the same row to all.
  virtual absl::Status Scatter(const kernels::MutableRows& rows, const std::uint32_t* slots,
                               std::size_t count, const kernels::Input& in) = 0;
  virtual absl::Status Pool(const kernels::Rows& rows, const kernels::cuda::DeviceBags& bags,
                            const kernels::Output& out) = 0;
  virtual absl::Status Step(const kernels::StepParameters& parameters,
                            const kernels::StepRows& rows,
                            const kernels::cuda::DeviceStepBatch& batch) = 0;
  // Sums what a batch has for each row, and steps the rows. UpdateBytes tells how large a workspace
  // that needs, and queues nothing.
  virtual absl::StatusOr<std::size_t> UpdateBytes(std::size_t count, std::uint32_t columns) = 0;
  virtual absl::Status Update(const kernels::StepParameters& parameters,
                              const kernels::StepRows& rows,
                              const kernels::cuda::DeviceUpdateBatch& batch,
                              kernels::cuda::Workspace workspace) = 0;
  // out[i] = inputs[0][i] + inputs[1][i] + ..., from the left. Inputs may be memory of other
  // devices that this one has access to; `out` may be one of them.
  //
  // Requires: 1 to kSumInputsMax inputs.
  static constexpr std::size_t kSumInputsMax = 64;
  virtual absl::Status SumInOrder(std::span<const float* const> inputs, std::size_t count,
                                  float* out) = 0;

  // The map of a ZCH table's ids: the verbs of server/zch/cuda. The first two tell how large a
  // workspace the verb needs, and queue nothing.
  virtual absl::StatusOr<std::size_t> ApplyIdsBytes(std::size_t count) = 0;
  virtual absl::StatusOr<std::size_t> SweepIdsBytes(const zch::cuda::DeviceGroups& groups,
                                                    std::uint32_t bucket_count) = 0;
  virtual absl::Status FindIds(const zch::cuda::DeviceGroups& groups, const std::int64_t* ids,
                               std::size_t count, std::int64_t* slots, std::uint8_t* outcomes) = 0;
  virtual absl::Status ApplyIds(const zch::SlotMapOptions& options,
                                const zch::cuda::DeviceGroups& groups,
                                const zch::cuda::DeviceBatch& batch,
                                const zch::cuda::DeviceAnswer& answer,
                                kernels::cuda::Workspace workspace) = 0;
  virtual absl::Status SweepIds(const zch::SlotMapOptions& options,
                                const zch::cuda::DeviceGroups& groups,
                                const zch::cuda::DeviceSweep& sweep,
                                const zch::cuda::DeviceSweptIds& swept,
                                kernels::cuda::Workspace workspace) = 0;
  virtual absl::Status HalveIdCounts(const zch::SlotMapOptions& options,
                                     const zch::cuda::DeviceGroups& groups) = 0;

  // Waits until all of it is done. After an error, too, nothing is under way.
  virtual absl::Status Synchronize() = 0;
  // Whether all of it is done; does not wait.
  virtual absl::StatusOr<bool> IsDone() = 0;

  // Marks the time at which the queue reaches this point. The latest call for a mark counts.
  enum class MarkAt : std::uint8_t { kBegin, kEnd };
  virtual absl::Status Mark(MarkAt mark) = 0;
  // How long the GPU took from one mark to the other. Requires: both were set, and all is done.
  virtual absl::StatusOr<std::chrono::nanoseconds> BetweenMarks() = 0;

  // Handle for libraries that queue work: the cudaStream_t of a CUDA stream, the address of a
  // simulated one.
  virtual void* handle() = 0;
};

}  // namespace embla::gpu
