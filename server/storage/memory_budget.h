// The bytes that a device may give to rows, and those that it keeps for the next ones. Stores take
// before they allocate.
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "server/storage/kept_memory.h"

namespace embla {

class MemoryBudget;

// Bytes taken from a budget; given back when destroyed.
class MemoryGrant {
 public:
  MemoryGrant() = default;
  MemoryGrant(MemoryGrant&& other) noexcept { *this = std::move(other); }
  MemoryGrant& operator=(MemoryGrant&& other) noexcept;
  ~MemoryGrant() { Reset(); }

  std::size_t bytes() const { return bytes_; }

 private:
  friend class MemoryBudget;
  MemoryGrant(MemoryBudget* budget, std::size_t bytes) : budget_(budget), bytes_(bytes) {}
  void Reset();

  MemoryBudget* budget_ = nullptr;  // Not owned; outlives this object.
  std::size_t bytes_ = 0;
};

// Thread safety: every method may be called from any thread.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::size_t limit_bytes) : limit_bytes_(limit_bytes), kept_(limit_bytes) {}

  // ResourceExhausted, with the three figures, when `bytes` more would exceed the limit.
  absl::StatusOr<MemoryGrant> Take(std::size_t bytes);

  KeptMemory& kept() { return kept_; }

  std::size_t limit_bytes() const { return limit_bytes_; }
  std::size_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }

 private:
  friend class MemoryGrant;

  const std::size_t limit_bytes_;
  std::atomic<std::size_t> used_bytes_ = 0;  // A counter only: it orders no other memory.
  KeptMemory kept_;
};

}  // namespace embla
