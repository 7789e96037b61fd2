#include "server/storage/kept_memory.h"

#include <utility>

namespace embla {
namespace {

constexpr std::size_t kLeastBytes = std::size_t{2} << 20;  // A huge page.
// Kept memory serves what needs at least the half of it.
constexpr std::size_t kMostOfNeeded = 2;

}  // namespace

absl::StatusOr<MemoryArena> KeptMemory::Map(std::size_t size) {
  {
    const MutexLock lock(mutex_);
    auto best = kept_.end();
    for (auto it = kept_.begin(); it != kept_.end(); ++it) {
      const bool fits = it->size() >= size && it->size() / kMostOfNeeded <= size;
      if (fits && (best == kept_.end() || it->size() < best->size())) best = it;
    }
    if (best != kept_.end()) {
      MemoryArena arena = std::move(*best);
      bytes_ -= arena.size();
      kept_.erase(best);
      return arena;
    }
  }
  return MemoryArena::Map(size);
}

void KeptMemory::Keep(MemoryArena arena) {
  if (arena.size() < kLeastBytes || arena.size() > limit_bytes_) return;
  arena.OfferPages();
  std::list<MemoryArena> dropped;  // Unmapped when nobody has to wait for it.
  const MutexLock lock(mutex_);
  bytes_ += arena.size();
  kept_.push_back(std::move(arena));
  while (bytes_ > limit_bytes_) {
    bytes_ -= kept_.front().size();
    dropped.splice(dropped.end(), kept_, kept_.begin());
  }
}

std::size_t KeptMemory::bytes() const {
  const MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace embla
