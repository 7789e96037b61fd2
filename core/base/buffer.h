// Aligned, pooled memory for rows, ids and gradients on their way to and from the network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "core/base/check.h"
#include "core/base/mutex.h"

namespace embla {

inline constexpr std::size_t kBufferAlignment = 64;

class BufferPool;

// Source of a pool's memory. Thread safety: every method may be called from any thread.
class BufferMemory {
 public:
  virtual ~BufferMemory() = default;
  // `capacity` bytes, aligned to kBufferAlignment. Requires: capacity is a power of two.
  virtual std::byte* Allocate(std::size_t capacity) = 0;
  virtual void Free(std::byte* data, std::size_t capacity) = 0;

  // The heap.
  static const std::shared_ptr<BufferMemory>& Heap();
  // Pages of 2 MiB, where the kernel has some, but for small buffers: what is copied, stepped and
  // lent to the kernel by them takes a fraction of the page table's work.
  static const std::shared_ptr<BufferMemory>& HugePages();
};

// Owns `size()` bytes, 64-byte aligned, uninitialised. Returns to its pool when destroyed; the
// pool's memory lives as long as any of its buffers.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer() { Reset(); }

  // A buffer that belongs to no pool.
  static Buffer Allocate(std::size_t size);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<std::byte> bytes() { return {data_, size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // The content as an array of T. Requires: size() is a multiple of sizeof(T).
  template <typename T>
  std::span<const T> As() const {
    EMBLA_CHECK(size_ % sizeof(T) == 0);
    return {reinterpret_cast<const T*>(data_), size_ / sizeof(T)};
  }
  template <typename T>
  std::span<T> MutableAs() {
    EMBLA_CHECK(size_ % sizeof(T) == 0);
    return {reinterpret_cast<T*>(data_), size_ / sizeof(T)};
  }

  // Shrinks the visible size; the memory stays. Requires: size <= size().
  void Truncate(std::size_t size);

 private:
  friend class BufferPool;
  struct PoolState;
  void Reset();

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
  std::shared_ptr<PoolState> pool_;  // Null: of the heap, freed, not returned.
};

// All or a stretch of a buffer that several hold; the last one returns the memory.
class SharedBuffer {
 public:
  SharedBuffer() = default;
  SharedBuffer(Buffer buffer) {  // NOLINT(google-explicit-constructor): a buffer with one holder.
    auto memory = std::make_shared<const Buffer>(std::move(buffer));
    bytes_ = memory->bytes();
    memory_ = std::move(memory);
  }
  // No bytes of its own: keeps `others`.
  explicit SharedBuffer(std::vector<SharedBuffer> others)
      : memory_(std::make_shared<const std::vector<SharedBuffer>>(std::move(others))) {}

  // Requires: begin <= end <= size().
  SharedBuffer Part(std::size_t begin, std::size_t end) const {
    EMBLA_CHECK(begin <= end && end <= size());
    SharedBuffer part = *this;
    part.bytes_ = bytes_.subspan(begin, end - begin);
    return part;
  }

  const std::byte* data() const { return bytes_.data(); }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  std::span<const std::byte> bytes() const { return bytes_; }
  // Keeps the memory for as long as a copy of it lives; null: there is none.
  const std::shared_ptr<const void>& memory() const { return memory_; }

  // Like Buffer::As, read-only.
  template <typename T>
  std::span<const T> As() const {
    EMBLA_CHECK(size() % sizeof(T) == 0);
    return {reinterpret_cast<const T*>(data()), size() / sizeof(T)};
  }

 private:
  std::shared_ptr<const void> memory_;
  std::span<const std::byte> bytes_;
};

// Keeps freed buffers of up to `retained_bytes_max` for reuse: large replies then cost no page
// faults. With a call of ReturnIdle now and then, only as many are kept as are used in between.
// Thread safety: every method may be called from any thread.
class BufferPool {
 public:
  static constexpr std::size_t kRetainedBytesMax = std::size_t{256} << 20;
  explicit BufferPool(std::size_t retained_bytes_max = kRetainedBytesMax,
                      std::shared_ptr<BufferMemory> memory = BufferMemory::HugePages());

  Buffer Take(std::size_t size);

  // Frees the buffers that were not needed since the last call.
  void ReturnIdle();

  std::size_t retained_bytes() const;

 private:
  std::shared_ptr<Buffer::PoolState> state_;
};

}  // namespace embla
