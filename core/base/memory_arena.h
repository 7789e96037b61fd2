// Zeroed anonymous memory, on huge pages where the kernel gives them (worth 1.3-1.7x on random
// rows: docs/benchmarks.md). Arenas that fill no huge pages of their own share some: a row of a
// small table would otherwise cost more for its address than for itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"

namespace embla {

class MemoryArena {
 public:
  MemoryArena() = default;
  MemoryArena(MemoryArena&& other) noexcept { *this = std::move(other); }
  MemoryArena& operator=(MemoryArena&& other) noexcept;
  ~MemoryArena() { Reset(); }

  // kSmall takes less memory for allocations that never fill most of what they ask for.
  enum class Pages : std::uint8_t { kHuge, kSmall };
  // At least `size` zeroed bytes, aligned to 2 MiB when these are huge pages and size > 8 MiB, to
  // 4 KiB otherwise. A page costs memory once it was written. size 0 gives an empty arena.
  // ResourceExhausted when the system has no address space left.
  static absl::StatusOr<MemoryArena> Map(std::size_t size, Pages pages = Pages::kHuge);

  // The system may take the pages back when it runs short of memory. Until something is written to
  // a page it holds anything: what was there, or zeros. Pages that it has not taken cost nothing to
  // use again, where new ones are cleared first.
  void OfferPages() const;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  // Memory that one call of the kernel mapped.
  class Mapping;
  class Shared;

  void Reset();

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::shared_ptr<const Mapping> mapping_;
};

}  // namespace embla
