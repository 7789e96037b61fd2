// Memory of a GPU, and host memory that its copies can reach, as RAII types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace embla::gpu {

enum class MemoryKind : std::uint8_t {
  kDevice,  // On the GPU; the host never reads it.
  kPinned,  // On the host, and never paged out, so that copies run at the link's full speed.
};
inline constexpr std::size_t kMemoryKinds = 2;

// The source of memory, to which it is given back.
class MemorySource {
 public:
  virtual void Free(MemoryKind kind, void* data, std::size_t size) = 0;

 protected:
  ~MemorySource() = default;
};

// Uninitialised, aligned to 256 bytes; given back when destroyed. Its device outlives it.
template <MemoryKind kKind>
class Memory {
 public:
  Memory() = default;
  Memory(MemorySource& source, void* data, std::size_t size)
      : source_(&source), data_(data), size_(size) {}
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept {
    if (this == &other) return *this;
    Reset();
    source_ = std::exchange(other.source_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }
  ~Memory() { Reset(); }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t size() const { return size_; }
  template <typename T>
  T* As() const {
    return static_cast<T*>(data_);
  }

 private:
  void Reset() {
    if (source_ != nullptr) source_->Free(kKind, data_, size_);
    source_ = nullptr;
  }

  MemorySource* source_ = nullptr;  // Not owned; outlives this object. Null: empty.
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

using DeviceMemory = Memory<MemoryKind::kDevice>;
using PinnedMemory = Memory<MemoryKind::kPinned>;

}  // namespace embla::gpu
