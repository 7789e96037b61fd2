// The memory of a simulated device: a range of addresses that crash whoever uses them, except while
// it is open for the device's kernels and copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "core/base/mutex.h"

namespace embla::gpu {

// Allocations by address. Thread safety: none.
class Allocations {
 public:
  void Add(const void* data, std::size_t size);
  // Returns the size. Requires: it was added.
  std::size_t Remove(const void* data);
  // Whether these bytes are of one allocation.
  bool Have(const void* data, std::size_t bytes) const;
  // The lowest address from `begin` on with so much room, behind one that was added with its gap.
  std::uintptr_t FindRoom(std::uintptr_t begin, std::size_t room) const;

  std::size_t total_bytes() const { return total_bytes_; }
  bool empty() const { return sizes_.empty(); }

 private:
  std::map<std::uintptr_t, std::size_t> sizes_;
  std::size_t total_bytes_ = 0;
};

// Thread safety: every method may be called from any thread.
class SimulatedMemory {
 public:
  // `bytes` can be allocated at once.
  explicit SimulatedMemory(std::size_t bytes);
  // Checks that all of it has been given back.
  ~SimulatedMemory();
  SimulatedMemory(const SimulatedMemory&) = delete;
  SimulatedMemory& operator=(const SimulatedMemory&) = delete;

  // Aligned to 256 bytes, and full of NaNs: whoever reads what was not written sees it. Null: there
  // is no room for it.
  void* Allocate(std::size_t size) ABSL_LOCKS_EXCLUDED(mu_);
  void Free(void* data) ABSL_LOCKS_EXCLUDED(mu_);
  bool Has(const void* data, std::size_t bytes) const ABSL_LOCKS_EXCLUDED(mu_);

  // It is open until Close has been called as often as Open.
  void Open() ABSL_LOCKS_EXCLUDED(mu_);
  void Close() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Protect(int protection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::size_t bytes_;
  const std::size_t range_bytes_;
  std::byte* const range_;
  mutable Mutex mu_;
  Allocations allocations_ ABSL_GUARDED_BY(mu_);
  std::size_t used_end_ ABSL_GUARDED_BY(mu_) = 0;  // Nothing behind it was ever allocated.
  int openings_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace embla::gpu
