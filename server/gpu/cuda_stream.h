// A stream of a CUDA device.
#pragma once

#include <array>
#include <memory>

#include "server/gpu/cuda_device.h"
#include "server/gpu/stream.h"

namespace embla::gpu {

class CudaStream final : public Stream {
 public:
  // Takes the cudaStream_t. `device` is not owned; outlives this object.
  CudaStream(CudaDevice& device, void* stream) : device_(device), stream_(stream) {}
  // Waits for what is queued.
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  absl::Status CopyToDevice(void* to, const void* host, std::size_t bytes) override;
  absl::Status CopyToHost(void* host, const void* from, std::size_t bytes) override;
  absl::Status Fill(float* data, std::size_t count, float value) override;
  absl::Status Initialize(const kernels::InitParameters& parameters, const kernels::InitRows& rows,
                          std::size_t first_slot, std::size_t row_count) override;
  absl::Status InitializeIds(const kernels::InitParameters& parameters,
                             const kernels::InitRows& rows, const std::uint32_t* slots,
                             const std::int64_t* ids, std::size_t count) override;
  absl::Status Gather(const kernels::Rows& rows, const std::uint32_t* slots, std::size_t count,
                      const kernels::Output& out) override;
  absl::Status Scatter(const kernels::MutableRows& rows, const std::uint32_t* slots,
                       std::size_t count, const kernels::Input& in) override;
  absl::Status Pool(const kernels::Rows& rows, const kernels::cuda::DeviceBags& bags,
                    const kernels::Output& out) override;
  absl::Status Step(const kernels::StepParameters& parameters, const kernels::StepRows& rows,
                    const kernels::cuda::DeviceStepBatch& batch) override;
  absl::StatusOr<std::size_t> UpdateBytes(std::size_t count, std::uint32_t columns) override;
  absl::Status Update(const kernels::StepParameters& parameters, const kernels::StepRows& rows,
                      const kernels::cuda::DeviceUpdateBatch& batch,
                      kernels::cuda::Workspace workspace) override;
  absl::Status SumInOrder(std::span<const float* const> inputs, std::size_t count,
                          float* out) override;
  absl::StatusOr<std::size_t> ApplyIdsBytes(std::size_t count) override;
  absl::StatusOr<std::size_t> SweepIdsBytes(const zch::cuda::DeviceGroups& groups,
                                            std::uint32_t bucket_count) override;
  absl::Status FindIds(const zch::cuda::DeviceGroups& groups, const std::int64_t* ids,
                       std::size_t count, std::int64_t* slots, std::uint8_t* outcomes) override;
  absl::Status ApplyIds(const zch::SlotMapOptions& options, const zch::cuda::DeviceGroups& groups,
                        const zch::cuda::DeviceBatch& batch, const zch::cuda::DeviceAnswer& answer,
                        kernels::cuda::Workspace workspace) override;
  absl::Status SweepIds(const zch::SlotMapOptions& options, const zch::cuda::DeviceGroups& groups,
                        const zch::cuda::DeviceSweep& sweep, const zch::cuda::DeviceSweptIds& swept,
                        kernels::cuda::Workspace workspace) override;
  absl::Status HalveIdCounts(const zch::SlotMapOptions& options,
                             const zch::cuda::DeviceGroups& groups) override;
  absl::Status Synchronize() override;
  absl::StatusOr<bool> IsDone() override;
  absl::Status Mark(MarkAt mark) override;
  absl::StatusOr<std::chrono::nanoseconds> BetweenMarks() override;
  void* handle() override { return stream_; }

 private:
  CudaDevice& device_;  // Not owned; outlives this object.
  void* const stream_;
  std::array<void*, 2> marks_ = {};  // cudaEvent_t; made when they are first set.
};

}  // namespace embla::gpu
