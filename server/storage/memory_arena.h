// Zeroed anonymous memory for rows, on huge pages where the kernel gives them (worth 1.3-1.7x on
// random rows: docs/benchmarks.md).
#pragma once

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"

namespace embla {

class MemoryArena {
 public:
  MemoryArena() = default;
  MemoryArena(MemoryArena&& other) noexcept { *this = std::move(other); }
  MemoryArena& operator=(MemoryArena&& other) noexcept;
  ~MemoryArena() { Reset(); }

  // At least `size` zeroed bytes, aligned to 2 MiB when size >= 2 MiB and to 4 KiB otherwise.
  // size 0 gives an empty arena. ResourceExhausted when the system has no address space left.
  static absl::StatusOr<MemoryArena> Map(std::size_t size);

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  void Reset();

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  void* mapping_ = nullptr;
  std::size_t mapping_size_ = 0;
};

}  // namespace embla
