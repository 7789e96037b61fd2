// A stream of a simulated device.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <functional>

#include "server/gpu/stream.h"
#include "server/gpu/testing/simulated_device.h"

namespace embla::gpu {

class SimulatedStream final : public Stream {
 public:
  explicit SimulatedStream(SimulatedDevice& device) : device_(device) {}
  // Does what is queued, unless the device has stopped.
  ~SimulatedStream() override;

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
  void* handle() override { return static_cast<SimulatedStream*>(this); }

  // For test doubles of libraries that queue on streams: `attempt` is called until it says that the
  // work is done. Later work waits for it.
  absl::Status QueueAttempts(std::function<bool()> attempt);

 private:
  absl::Status Queue(std::function<void()> work);
  // Runs queued work as far as possible, and returns whether that is all of it.
  bool RunQueued();
  std::span<const std::uint32_t> Slots(const std::uint32_t* slots, std::size_t count) const;
  // The host's address of rows of which `slots` are read or written.
  std::byte* RowBase(const void* base, std::size_t stride_bytes, std::size_t row_bytes,
                     std::span<const std::uint32_t> slots) const;
  // The host's addresses of rows with their state, of which `slots` are stepped.
  kernels::StepRows RealRows(const kernels::StepParameters& parameters,
                             const kernels::StepRows& rows,
                             std::span<const std::uint32_t> slots) const;
  kernels::Output Packed(const kernels::Output& out, std::size_t count,
                         std::uint32_t columns) const;

  // The same of the maps of ids.
  const IdKernels& Ids() const;
  template <typename T>
  T* Real(T* data, std::size_t count) const {
    if (data == nullptr) return nullptr;
    return reinterpret_cast<T*>(device_.Translate(data, count * sizeof(T)));
  }
  zch::cuda::DeviceGroups Real(const zch::cuda::DeviceGroups& groups) const;
  kernels::cuda::Workspace Real(const kernels::cuda::Workspace& workspace) const;

  SimulatedDevice& device_;  // Not owned; outlives this object.
  std::deque<std::function<bool()>> queued_;
  std::array<std::chrono::steady_clock::time_point, 2> marks_ = {};
};

}  // namespace embla::gpu
