// A GPU by the CUDA runtime: plain cudaMalloc, pinned host memory that all GPUs can copy from and
// to, streams that do not wait for one another, and the kernels of kernels/cuda.
//
// Freeing device memory waits for the GPU; tables are made and dropped seldom.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/gpu/device.h"

namespace embla::gpu {

class CudaDevice final : public Device {
 public:
  // Requires: `ordinal` is below the number of GPUs.
  static absl::StatusOr<DeviceProperties> Describe(std::uint32_t ordinal);
  static absl::StatusOr<std::unique_ptr<Device>> Open(std::uint32_t ordinal);

  bool IsPinned(const void* data, std::size_t bytes) const override;
  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override;
  absl::Status EnableAccessTo(Device& other) override;
  const KernelTable& kernels() const override;
  absl::Status MakeCurrent() override;
  absl::Status Check(int cuda_error, std::string_view what) override;

 protected:
  absl::StatusOr<void*> AllocateRaw(MemoryKind kind, std::size_t size) override;
  void FreeRaw(MemoryKind kind, void* data) override;

 private:
  using Device::Device;
};

}  // namespace embla::gpu
