// Memory of a device's stores that are gone, for the next ones: what moves away from a node and
// back need not wait for the kernel to clear as many bytes again (a seventh of the processor time:
// docs/benchmarks.md). The kernel may take it at any time; nobody counts it as used.
#pragma once

#include <cstddef>
#include <list>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "core/base/memory_arena.h"
#include "core/base/mutex.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class KeptMemory {
 public:
  explicit KeptMemory(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // At least `size` bytes that hold anything: kept ones, or new ones. ResourceExhausted as
  // MemoryArena::Map.
  absl::StatusOr<MemoryArena> Map(std::size_t size) ABSL_LOCKS_EXCLUDED(mutex_);
  // Nothing refers to the memory any more. The memory that was kept longest is freed when there is
  // more than the limit; less than a huge page is not worth keeping.
  void Keep(MemoryArena arena) ABSL_LOCKS_EXCLUDED(mutex_);

  std::size_t bytes() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::size_t limit_bytes_;
  mutable Mutex mutex_;
  std::list<MemoryArena> kept_ ABSL_GUARDED_BY(mutex_);  // Oldest first.
  std::size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace embla
