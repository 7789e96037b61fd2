#include "core/base/memory_arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace embla {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

absl::StatusOr<MemoryArena> MemoryArena::Map(std::size_t size, Pages pages) {
  MemoryArena arena;
  if (size == 0) return arena;
  // One huge page more than asked for, so that an aligned start is inside.
  const std::size_t slack = pages == Pages::kHuge && size >= kHugePage ? kHugePage : 0;
  if (size > std::numeric_limits<std::size_t>::max() - slack) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot map ", size, " bytes"));
  }
  const std::size_t mapped = size + slack;
  void* const mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot map ", size, " bytes of memory: ", std::strerror(errno)));
  }
  arena.mapping_ = mapping;
  arena.mapping_size_ = mapped;
  arena.size_ = size;
  void* begin = mapping;
  std::size_t space = mapped;
  if (slack != 0) begin = std::align(kHugePage, size, begin, space);
  arena.data_ = static_cast<std::byte*>(begin);
  // Advice only: where huge pages are switched off, small ones serve.
  if (slack != 0) (void)madvise(arena.data_, size, MADV_HUGEPAGE);
  return arena;
}

MemoryArena& MemoryArena::operator=(MemoryArena&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  mapping_ = std::exchange(other.mapping_, nullptr);
  mapping_size_ = std::exchange(other.mapping_size_, 0);
  return *this;
}

void MemoryArena::OfferPages() const {
  // Advice only: pages that the system cannot take stay.
  if (mapping_ != nullptr) (void)madvise(mapping_, mapping_size_, MADV_FREE);
}

void MemoryArena::Reset() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_size_);
  data_ = nullptr;
  size_ = 0;
  mapping_ = nullptr;
  mapping_size_ = 0;
}

}  // namespace embla
