// Memory of buffers that copies from a GPU reach, so that what it computed lands where gRPC sends
// it from.
#pragma once

#include <cstddef>
#include <map>

#include "absl/base/thread_annotations.h"
#include "core/base/buffer.h"
#include "core/base/mutex.h"
#include "server/gpu/device.h"

namespace embla::gpu {

// Thread safety: every method may be called from any thread.
class PinnedBuffers final : public BufferMemory {
 public:
  // Pins through `device`, which is not owned and outlives the memory; the copies of every GPU
  // reach it. At most `limit_bytes` at once: pinned memory is taken from the whole machine. Beyond
  // it, and where the device gives none, it is the heap's.
  PinnedBuffers(Device& device, std::size_t limit_bytes)
      : device_(device), limit_bytes_(limit_bytes) {}
  // Requires: everything was freed.
  ~PinnedBuffers() override;

  std::byte* Allocate(std::size_t capacity) override ABSL_LOCKS_EXCLUDED(mu_);
  void Free(std::byte* data, std::size_t capacity) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Empty: there is none to be had.
  PinnedMemory Pin(std::size_t capacity);

  Device& device_;  // Not owned; outlives this object.
  const std::size_t limit_bytes_;
  Mutex mu_;
  std::size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<const std::byte*, PinnedMemory> pinned_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla::gpu
