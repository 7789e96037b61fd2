#include "server/gpu/cuda_stream.h"

#include <cuda_runtime_api.h>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "kernels/cuda/arrays.h"
#include "kernels/cuda/initialize.h"

namespace embla::gpu {
namespace {

cudaStream_t Handle(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t Event(void* event) { return static_cast<cudaEvent_t>(event); }

}  // namespace

CudaStream::~CudaStream() {
  // A stopped device gives an error that is known already.
  cudaStreamSynchronize(Handle(stream_));
  cudaStreamDestroy(Handle(stream_));
  for (void* const mark : marks_) {
    if (mark != nullptr) cudaEventDestroy(Event(mark));
  }
  cudaGetLastError();
}

absl::Status CudaStream::CopyToDevice(void* to, const void* host, std::size_t bytes) {
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  return device_.Check(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, Handle(stream_)),
                       "a copy to the GPU");
}

absl::Status CudaStream::CopyToHost(void* host, const void* from, std::size_t bytes) {
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  return device_.Check(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, Handle(stream_)),
                       "a copy from the GPU");
}

absl::Status CudaStream::Fill(float* data, std::size_t count, float value) {
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  return device_.Check(kernels::cuda::FillAsync(data, count, value, stream_), "Fill");
}

absl::Status CudaStream::Initialize(const kernels::InitParameters& parameters,
                                    const kernels::InitRows& rows, std::size_t first_slot,
                                    std::size_t row_count) {
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  return device_.Check(
      kernels::cuda::InitializeAsync(parameters, rows, first_slot, row_count, stream_),
      "Initialize");
}

absl::Status CudaStream::InitializeIds(const kernels::InitParameters& parameters,
                                       const kernels::InitRows& rows, const std::uint32_t* slots,
                                       const std::int64_t* ids, std::size_t count) {
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  return device_.Check(
      kernels::cuda::InitializeIdsAsync(parameters, rows, slots, ids, count, stream_),
      "InitializeIds");
}

absl::Status CudaStream::Gather(const kernels::Rows& rows, const std::uint32_t* slots,
                                std::size_t count, const kernels::Output& out) {
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  return device_.Check(kernels::cuda::GatherAsync(rows, slots, count, out, stream_), "Gather");
}

absl::Status CudaStream::Scatter(const kernels::MutableRows& rows, const std::uint32_t* slots,
                                 std::size_t count, const kernels::Input& in) {
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  return device_.Check(kernels::cuda::ScatterAsync(rows, slots, count, in, stream_), "Scatter");
}

absl::Status CudaStream::Pool(const kernels::Rows& rows, const kernels::cuda::DeviceBags& bags,
                              const kernels::Output& out) {
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  return device_.Check(kernels::cuda::PoolAsync(rows, bags, out, stream_), "Pool");
}

absl::Status CudaStream::Step(const kernels::StepParameters& parameters,
                              const kernels::StepRows& rows,
                              const kernels::cuda::DeviceStepBatch& batch) {
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  return device_.Check(kernels::cuda::StepAsync(parameters, rows, batch, stream_), "Step");
}

absl::StatusOr<std::size_t> CudaStream::UpdateBytes(std::size_t count, std::uint32_t columns) {
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  std::size_t bytes = 0;
  EMBLA_RETURN_IF_ERROR(
      device_.Check(kernels::cuda::UpdateBatchBytes(count, columns, &bytes), "UpdateBytes"));
  return bytes;
}

absl::Status CudaStream::Update(const kernels::StepParameters& parameters,
                                const kernels::StepRows& rows,
                                const kernels::cuda::DeviceUpdateBatch& batch,
                                kernels::cuda::Workspace workspace) {
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  return device_.Check(kernels::cuda::UpdateBatchAsync(parameters, rows, batch, workspace, stream_),
                       "Update");
}

absl::Status CudaStream::SumInOrder(std::span<const float* const> inputs, std::size_t count,
                                    float* out) {
  EMBLA_CHECK(!inputs.empty() && inputs.size() <= kSumInputsMax);
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  return device_.Check(
      kernels::cuda::SumInOrderAsync(inputs.data(), inputs.size(), count, out, stream_),
      "SumInOrder");
}

// Also of a device that was stopped: its copies may go on, and memory of the host is given back
// when this returns.
absl::Status CudaStream::Synchronize() {
  const cudaError_t waited = cudaStreamSynchronize(Handle(stream_));
  EMBLA_RETURN_IF_ERROR(device_.health());
  return device_.Check(waited, "waiting for the GPU");
}

absl::StatusOr<bool> CudaStream::IsDone() {
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  const cudaError_t state = cudaStreamQuery(Handle(stream_));
  if (state == cudaErrorNotReady) return false;
  EMBLA_RETURN_IF_ERROR(device_.Check(state, "asking the GPU how far it is"));
  return true;
}

absl::Status CudaStream::Mark(MarkAt mark) {
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  void*& event = marks_[static_cast<std::size_t>(mark)];
  if (event == nullptr) {
    cudaEvent_t made = nullptr;
    EMBLA_RETURN_IF_ERROR(device_.Check(cudaEventCreate(&made), "making an event"));
    event = made;
  }
  return device_.Check(cudaEventRecord(Event(event), Handle(stream_)), "an event");
}

absl::StatusOr<std::chrono::nanoseconds> CudaStream::BetweenMarks() {
  float milliseconds = 0;
  EMBLA_RETURN_IF_ERROR(
      device_.Check(cudaEventElapsedTime(&milliseconds, Event(marks_[0]), Event(marks_[1])),
                    "the time between two events"));
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double, std::milli>(milliseconds));
}

}  // namespace embla::gpu
