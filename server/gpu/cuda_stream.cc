#include "server/gpu/cuda_stream.h"

#include <cuda_runtime_api.h>

#include <chrono>

#include "core/base/short_wait.h"
#include "core/base/status_macros.h"

namespace embla::gpu {
namespace {

// How long a small batch takes on the GPU.
constexpr std::chrono::microseconds kLooksMax{50};

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

absl::Status CudaStream::Queue(std::string_view what, Work work) {
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  return device_.Check(work(stream_), what);
}

// Also of a device that was stopped: its copies may go on, and memory of the host is given back
// when this returns.
absl::Status CudaStream::Synchronize() {
  cudaError_t waited = cudaErrorNotReady;
  thread_local ShortWait wait(kLooksMax);
  wait.Until([&](bool sleeps) {
    waited = sleeps ? cudaStreamSynchronize(Handle(stream_)) : cudaStreamQuery(Handle(stream_));
    return waited != cudaErrorNotReady;
  });
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
