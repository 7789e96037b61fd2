#include "server/gpu/cuda_device.h"

#include <cuda_runtime_api.h>

#include <array>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "server/gpu/cuda_status.h"
#include "server/gpu/cuda_stream.h"
#include "server/gpu/kernel_table.h"

namespace embla::gpu {
namespace {

int OrdinalOf(const DeviceProperties& properties) { return static_cast<int>(properties.ordinal); }

// Both edges of the memory's clock, over the bus.
std::int64_t MemoryBytesPerSecond(int ordinal) {
  int kilohertz = 0, bits = 0;
  if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, ordinal) != cudaSuccess ||
      cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, ordinal) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return std::int64_t{2} * kilohertz * 1000 * (bits / 8);
}

}  // namespace

absl::StatusOr<DeviceProperties> CudaDevice::Describe(std::uint32_t ordinal) {
  const int device = static_cast<int>(ordinal);
  const auto failed = [&](cudaError_t error) {
    cudaGetLastError();
    return CudaStatus(error, absl::StrCat("GPU ", ordinal));
  };
  cudaDeviceProp found;
  if (const cudaError_t e = cudaGetDeviceProperties(&found, device); e != cudaSuccess) {
    return failed(e);
  }
  std::array<char, 32> bus_id = {};
  if (const cudaError_t e = cudaDeviceGetPCIBusId(bus_id.data(), bus_id.size(), device);
      e != cudaSuccess) {
    return failed(e);
  }
  if (const cudaError_t e = cudaSetDevice(device); e != cudaSuccess) return failed(e);
  std::size_t free_bytes = 0, total_bytes = 0;
  if (const cudaError_t e = cudaMemGetInfo(&free_bytes, &total_bytes); e != cudaSuccess) {
    return failed(e);
  }
  DeviceProperties properties;
  properties.ordinal = ordinal;
  properties.name = found.name;
  properties.bus_id = bus_id.data();
  properties.memory_bytes = static_cast<std::int64_t>(total_bytes);
  properties.free_bytes = static_cast<std::int64_t>(free_bytes);
  properties.memory_bytes_per_second = MemoryBytesPerSecond(device);
  return properties;
}

absl::StatusOr<std::unique_ptr<Device>> CudaDevice::Open(std::uint32_t ordinal) {
  EMBLA_ASSIGN_OR_RETURN(DeviceProperties properties, Describe(ordinal));
  std::unique_ptr<CudaDevice> device(new CudaDevice(std::move(properties)));
  // Threads that wait for a GPU sleep: by default they keep a core busy.
  EMBLA_RETURN_IF_ERROR(device->MakeCurrent());
  EMBLA_RETURN_IF_ERROR(
      device->Check(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync), "cudaSetDeviceFlags"));
  return device;
}

const KernelTable& CudaDevice::kernels() const { return LinkedKernels(); }

absl::Status CudaDevice::MakeCurrent() {
  EMBLA_RETURN_IF_ERROR(health());
  return Check(cudaSetDevice(OrdinalOf(properties())), "cudaSetDevice");
}

absl::Status CudaDevice::Check(int cuda_error, std::string_view what) {
  if (cuda_error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();  // Errors of calls stay with the thread until somebody asks.
  const absl::Status status = CudaStatus(cuda_error, what);
  return StopsDevice(cuda_error) ? Stop(status) : status;
}

absl::StatusOr<void*> CudaDevice::AllocateRaw(MemoryKind kind, std::size_t size) {
  EMBLA_RETURN_IF_ERROR(MakeCurrent());
  void* data = nullptr;
  if (kind == MemoryKind::kDevice) {
    EMBLA_RETURN_IF_ERROR(
        Check(cudaMalloc(&data, size),
              absl::StrCat("allocating ", size, " bytes on GPU ", properties().ordinal)));
  } else {
    EMBLA_RETURN_IF_ERROR(Check(cudaHostAlloc(&data, size, cudaHostAllocPortable),
                                absl::StrCat("allocating ", size, " bytes of pinned memory")));
  }
  return data;
}

// Also of a device that has stopped: the driver keeps count of the memory until the process ends.
void CudaDevice::FreeRaw(MemoryKind kind, void* data) {
  if (cudaSetDevice(OrdinalOf(properties())) == cudaSuccess) {
    if (kind == MemoryKind::kDevice) {
      cudaFree(data);
    } else {
      cudaFreeHost(data);
    }
  }
  cudaGetLastError();
}

// One byte speaks for its allocation.
bool CudaDevice::IsPinned(const void* data, std::size_t) const {
  cudaPointerAttributes attributes = {};
  if (cudaPointerGetAttributes(&attributes, data) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return attributes.type == cudaMemoryTypeHost;
}

absl::StatusOr<std::unique_ptr<Stream>> CudaDevice::NewStream() {
  EMBLA_RETURN_IF_ERROR(MakeCurrent());
  cudaStream_t stream = nullptr;
  EMBLA_RETURN_IF_ERROR(
      Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream"));
  return std::make_unique<CudaStream>(*this, stream);
}

absl::Status CudaDevice::EnableAccessTo(Device& other) {
  if (other.properties().bus_id == properties().bus_id) return absl::OkStatus();
  EMBLA_RETURN_IF_ERROR(MakeCurrent());
  int possible = 0;
  EMBLA_RETURN_IF_ERROR(Check(
      cudaDeviceCanAccessPeer(&possible, OrdinalOf(properties()), OrdinalOf(other.properties())),
      "cudaDeviceCanAccessPeer"));
  if (possible == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "GPU ", properties().ordinal, " has no direct access to GPU ", other.properties().ordinal));
  }
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(OrdinalOf(other.properties()), 0);
  if (enabled == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
    return absl::OkStatus();
  }
  return Check(enabled, "cudaDeviceEnablePeerAccess");
}

}  // namespace embla::gpu
