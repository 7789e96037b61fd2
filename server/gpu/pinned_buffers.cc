#include "server/gpu/pinned_buffers.h"

#include <utility>

#include "core/base/check.h"

namespace embla::gpu {

PinnedBuffers::~PinnedBuffers() {
  const MutexLock lock(mu_);
  EMBLA_CHECK(pinned_.empty());
}

PinnedMemory PinnedBuffers::Pin(std::size_t capacity) {
  {
    const MutexLock lock(mu_);
    if (capacity > limit_bytes_ - bytes_) return {};
    bytes_ += capacity;
  }
  absl::StatusOr<PinnedMemory> memory = device_.AllocatePinned(capacity);
  if (memory.ok()) return *std::move(memory);
  const MutexLock lock(mu_);
  bytes_ -= capacity;
  return {};
}

std::byte* PinnedBuffers::Allocate(std::size_t capacity) {
  PinnedMemory memory = Pin(capacity);
  if (memory.size() == 0) return BufferMemory::Heap()->Allocate(capacity);
  std::byte* const data = memory.data();
  const MutexLock lock(mu_);
  pinned_.emplace(data, std::move(memory));
  return data;
}

void PinnedBuffers::Free(std::byte* data, std::size_t capacity) {
  PinnedMemory memory;  // Given back when nobody has to wait for it.
  {
    const MutexLock lock(mu_);
    if (const auto found = pinned_.find(data); found != pinned_.end()) {
      memory = std::move(found->second);
      pinned_.erase(found);
      bytes_ -= capacity;
    }
  }
  if (memory.size() == 0) BufferMemory::Heap()->Free(data, capacity);
}

}  // namespace embla::gpu
