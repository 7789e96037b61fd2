#include <cstdlib>
#include <cstring>
#include <new>

#include "kernels/cuda/testing/device_memory.h"

namespace embla::kernels::cuda {

constexpr std::align_val_t kAlignment{256};

// Exactly as large as asked for: sanitizers see what a kernel touches past the end.
void* DeviceAllocate(std::size_t bytes) { return ::operator new(bytes, kAlignment); }

void DeviceFree(void* memory) { ::operator delete(memory, kAlignment); }

// Copies of no bytes return early: memcpy takes no null addresses, not even then.
void CopyToDevice(void* device, const void* host, std::size_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}

void CopyToHost(void* host, const void* device, std::size_t bytes) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}

}  // namespace embla::kernels::cuda
