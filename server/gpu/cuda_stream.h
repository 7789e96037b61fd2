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
  absl::Status Queue(std::string_view what, Work work) override;
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
