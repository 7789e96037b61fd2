#include "core/base/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>

namespace embla {
namespace {

class HeapMemory final : public BufferMemory {
 public:
  std::byte* Allocate(std::size_t capacity) override {
    void* const memory = std::aligned_alloc(kBufferAlignment, capacity);
    EMBLA_CHECK(memory != nullptr);  // Callers bound sizes; exhaustion here is the kernel's OOM.
    return static_cast<std::byte*>(memory);
  }
  void Free(std::byte* data, std::size_t) override { std::free(data); }
};

constexpr std::size_t kPageBytes = std::size_t{2} << 20;
// Smaller ones would keep a page for too little.
constexpr std::size_t kSharedBytesMin = std::size_t{32} << 10;

// Buffers of less than a page share one: a binary buddy system (Knowlton, 1965).
class HugePages final : public BufferMemory {
 public:
  std::byte* Allocate(std::size_t capacity) override {
    if (capacity < kSharedBytesMin) return Heap()->Allocate(capacity);
    if (capacity >= kPageBytes) return MakePages(capacity);
    MutexLock lock(mu_);
    std::size_t size = capacity;
    while (size < kPageBytes && free_[size].empty()) size *= 2;
    std::byte* const piece = size == kPageBytes ? MakePages(kPageBytes)
                                                : free_[size].extract(free_[size].begin()).value();
    while (size > capacity) {
      size /= 2;
      free_[size].insert(piece + size);
    }
    return piece;
  }

  void Free(std::byte* data, std::size_t capacity) override {
    if (capacity < kSharedBytesMin) return Heap()->Free(data, capacity);
    MutexLock lock(mu_);
    for (; capacity < kPageBytes; capacity *= 2) {
      const bool is_upper = reinterpret_cast<std::uintptr_t>(data) % (2 * capacity) != 0;
      std::byte* const buddy = is_upper ? data - capacity : data + capacity;
      if (free_[capacity].erase(buddy) == 0) {
        free_[capacity].insert(data);
        return;
      }
      data = std::min(data, buddy);
    }
    std::free(data);
  }

 private:
  static std::byte* MakePages(std::size_t size) {
    void* const memory = std::aligned_alloc(kPageBytes, size);
    EMBLA_CHECK(memory != nullptr);                // Sizes are bounded, see above.
    (void)::madvise(memory, size, MADV_HUGEPAGE);  // Where the kernel has none, small ones do.
    return static_cast<std::byte*>(memory);
  }

  Mutex mu_;
  // By size. The first of them is used first, so that pages become free.
  std::map<std::size_t, std::set<std::byte*>> free_ ABSL_GUARDED_BY(mu_);
};

// Sizes are rounded up to powers of two from 4 KiB, so that a freed buffer fits the next request.
std::size_t CapacityFor(std::size_t size) {
  return std::bit_ceil(size < 4096 ? std::size_t{4096} : size);
}

}  // namespace

const std::shared_ptr<BufferMemory>& BufferMemory::Heap() {
  static const auto& heap = *new std::shared_ptr<BufferMemory>(std::make_shared<HeapMemory>());
  return heap;
}

const std::shared_ptr<BufferMemory>& BufferMemory::HugePages() {
  static const auto& pages =
      *new std::shared_ptr<BufferMemory>(std::make_shared<embla::HugePages>());
  return pages;
}

struct Buffer::PoolState {
  PoolState(std::size_t bytes_max, std::shared_ptr<BufferMemory> from)
      : retained_bytes_max(bytes_max), memory(std::move(from)) {}
  ~PoolState() {
    for (auto& [capacity, list] : free) {
      for (std::byte* data : list.buffers) memory->Free(data, capacity);
    }
  }

  struct FreeList {
    std::vector<std::byte*> buffers;  // The last one is used first.
    std::size_t fewest = 0;           // Least number of idle buffers since the last ReturnIdle.
  };

  const std::size_t retained_bytes_max;
  const std::shared_ptr<BufferMemory> memory;
  Mutex mu;
  std::size_t retained_bytes ABSL_GUARDED_BY(mu) = 0;
  std::map<std::size_t, FreeList> free ABSL_GUARDED_BY(mu);  // By capacity.
};

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  capacity_ = std::exchange(other.capacity_, 0);
  pool_ = std::move(other.pool_);
  return *this;
}

Buffer Buffer::Allocate(std::size_t size) {
  Buffer buffer;
  buffer.capacity_ = CapacityFor(size);
  buffer.data_ = BufferMemory::Heap()->Allocate(buffer.capacity_);
  buffer.size_ = size;
  return buffer;
}

void Buffer::Truncate(std::size_t size) {
  EMBLA_CHECK(size <= size_);
  size_ = size;
}

void Buffer::Reset() {
  if (data_ == nullptr) return;
  bool retained = false;
  if (pool_ != nullptr) {
    MutexLock lock(pool_->mu);
    if (pool_->retained_bytes + capacity_ <= pool_->retained_bytes_max) {
      pool_->retained_bytes += capacity_;
      pool_->free[capacity_].buffers.push_back(data_);
      retained = true;
    }
  }
  if (!retained) (pool_ ? pool_->memory : BufferMemory::Heap())->Free(data_, capacity_);
  data_ = nullptr;
  size_ = capacity_ = 0;
  pool_.reset();
}

BufferPool::BufferPool(std::size_t retained_bytes_max, std::shared_ptr<BufferMemory> memory)
    : state_(std::make_shared<Buffer::PoolState>(retained_bytes_max, std::move(memory))) {}

Buffer BufferPool::Take(std::size_t size) {
  Buffer buffer;
  buffer.capacity_ = CapacityFor(size);
  buffer.size_ = size;
  buffer.pool_ = state_;
  {
    MutexLock lock(state_->mu);
    Buffer::PoolState::FreeList& free = state_->free[buffer.capacity_];
    if (!free.buffers.empty()) {
      buffer.data_ = free.buffers.back();
      free.buffers.pop_back();
      free.fewest = std::min(free.fewest, free.buffers.size());
      state_->retained_bytes -= buffer.capacity_;
      return buffer;
    }
  }
  buffer.data_ = state_->memory->Allocate(buffer.capacity_);
  return buffer;
}

void BufferPool::ReturnIdle() {
  std::vector<std::pair<std::byte*, std::size_t>> idle;
  {
    MutexLock lock(state_->mu);
    for (auto& [capacity, list] : state_->free) {
      const auto end = list.buffers.begin() + static_cast<std::ptrdiff_t>(list.fewest);
      for (auto it = list.buffers.begin(); it != end; ++it) idle.emplace_back(*it, capacity);
      list.buffers.erase(list.buffers.begin(), end);
      state_->retained_bytes -= list.fewest * capacity;
      list.fewest = list.buffers.size();
    }
  }
  for (const auto& [data, capacity] : idle) state_->memory->Free(data, capacity);
}

std::size_t BufferPool::retained_bytes() const {
  MutexLock lock(state_->mu);
  return state_->retained_bytes;
}

}  // namespace embla
