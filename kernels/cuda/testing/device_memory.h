// Memory of the device under test: a GPU's, or, emulated, the host's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/launch.h"

namespace embla::kernels::cuda {

// 256-byte aligned. Ends the process when there is no more.
void* DeviceAllocate(std::size_t bytes);
void DeviceFree(void* memory);
void CopyToDevice(void* device, const void* host, std::size_t bytes);
// Waits for everything queued before. Ends the process when something failed.
void CopyToHost(void* host, const void* device, std::size_t bytes);

// A copy of host memory on the device, at an address with the same remainder by 64.
class OnDevice {
 public:
  // `room`, where larger, is how many bytes the device may touch from the copy's begin on. Bytes
  // past the copy are NaNs in every format, so that results do not depend on them.
  OnDevice(const void* host, std::size_t bytes, std::size_t room = 0)
      : offset_(reinterpret_cast<std::uintptr_t>(host) % 64), bytes_(host == nullptr ? 0 : bytes) {
    memory_ = DeviceAllocate(offset_ + (room > bytes ? room : bytes));
    if (bytes_ > 0) CopyToDevice(data(), host, bytes_);
    if (host == nullptr || room <= bytes) return;
    const std::vector<std::byte> past(room - bytes, std::byte{0xff});
    CopyToDevice(data() + bytes, past.data(), past.size());
  }
  template <typename T>
  explicit OnDevice(std::span<const T> values) : OnDevice(values.data(), values.size_bytes()) {}
  template <typename T>
  explicit OnDevice(const std::vector<T>& values) : OnDevice(std::span<const T>(values)) {}
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { DeviceFree(memory_); }

  std::byte* data() const { return static_cast<std::byte*>(memory_) + offset_; }
  template <typename T>
  T* As() const {
    return reinterpret_cast<T*>(data());
  }
  // Copies `bytes` bytes of the device's memory to the host.
  void CopyTo(void* host) const {
    if (bytes_ > 0) CopyToHost(host, data(), bytes_);
  }

 private:
  std::size_t offset_;
  std::size_t bytes_;
  void* memory_;
};

}  // namespace embla::kernels::cuda
