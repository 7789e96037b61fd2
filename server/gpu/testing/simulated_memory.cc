// Under AddressSanitizer, memory that was given back is poisoned, and so is a gap behind every
// allocation: a kernel that leaves its memory ends the test there, too.
#include "server/gpu/testing/simulated_memory.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "core/base/check.h"

namespace embla::gpu {
namespace {

constexpr std::size_t kAlignment = 256;

constexpr std::size_t Aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::uintptr_t AddressOf(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

// Room of an allocation with the gap behind it.
constexpr std::size_t RoomOf(std::size_t size) { return Aligned(size) + kAlignment; }

// Address space costs nothing. More of it than memory, so that gaps between allocations seldom
// matter.
constexpr std::size_t RangeBytes(std::size_t bytes) {
  constexpr std::size_t kGapsBytes = std::size_t{64} << 20;
  return 2 * Aligned(bytes) + kGapsBytes;
}

std::byte* Reserve(std::size_t bytes) {
  void* const range =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EMBLA_CHECK(range != MAP_FAILED);
  // Opening changes every page that was used. Where there are no large ones, it takes longer.
  madvise(range, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(range);
}

}  // namespace

void Allocations::Add(const void* data, std::size_t size) {
  sizes_.emplace(AddressOf(data), size);
  total_bytes_ += size;
}

std::size_t Allocations::Remove(const void* data) {
  const auto found = sizes_.find(AddressOf(data));
  EMBLA_CHECK(found != sizes_.end());
  const std::size_t size = found->second;
  sizes_.erase(found);
  total_bytes_ -= size;
  return size;
}

bool Allocations::Have(const void* data, std::size_t bytes) const {
  auto next = sizes_.upper_bound(AddressOf(data));
  if (next == sizes_.begin()) return false;
  const auto& [begin, size] = *--next;
  const std::size_t offset = AddressOf(data) - begin;
  return offset <= size && bytes <= size - offset;
}

std::uintptr_t Allocations::FindRoom(std::uintptr_t begin, std::size_t room) const {
  for (const auto& [next, size] : sizes_) {
    if (next - begin >= room) break;
    begin = next + RoomOf(size);
  }
  return begin;
}

SimulatedMemory::SimulatedMemory(std::size_t bytes)
    : bytes_(bytes), range_bytes_(RangeBytes(bytes)), range_(Reserve(range_bytes_)) {}

SimulatedMemory::~SimulatedMemory() {
  const MutexLock lock(mu_);
  EMBLA_CHECK(allocations_.empty() && openings_ == 0);
  ASAN_UNPOISON_MEMORY_REGION(range_, used_end_);
  munmap(range_, range_bytes_);
}

void SimulatedMemory::Protect(int protection) {
  EMBLA_CHECK(mprotect(range_, range_bytes_, protection) == 0);
}

void* SimulatedMemory::Allocate(std::size_t size) {
  void* data = nullptr;
  {
    const MutexLock lock(mu_);
    if (size > bytes_ - allocations_.total_bytes()) return nullptr;
    const std::size_t begin =
        allocations_.FindRoom(AddressOf(range_), RoomOf(size)) - AddressOf(range_);
    const std::size_t end = begin + RoomOf(size);
    if (end > range_bytes_) return nullptr;
    data = range_ + begin;
    allocations_.Add(data, size);
    used_end_ = std::max(used_end_, end);
  }
  ASAN_POISON_MEMORY_REGION(data, RoomOf(size));
  ASAN_UNPOISON_MEMORY_REGION(data, size);
  Open();
  std::memset(data, 0xff, size);
  Close();
  return data;
}

void SimulatedMemory::Free(void* data) {
  const MutexLock lock(mu_);
  const std::size_t size = allocations_.Remove(data);
  ASAN_POISON_MEMORY_REGION(data, RoomOf(size));
  static_cast<void>(size);  // Without AddressSanitizer.
}

bool SimulatedMemory::Has(const void* data, std::size_t bytes) const {
  const MutexLock lock(mu_);
  return allocations_.Have(data, bytes);
}

void SimulatedMemory::Open() {
  const MutexLock lock(mu_);
  if (openings_++ == 0) Protect(PROT_READ | PROT_WRITE);
}

void SimulatedMemory::Close() {
  const MutexLock lock(mu_);
  if (--openings_ == 0) Protect(PROT_NONE);
}

}  // namespace embla::gpu
