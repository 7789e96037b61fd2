#include "core/base/memory_arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

constexpr std::size_t kPage = std::size_t{4} << 10;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
// Larger arenas have a mapping of their own: the huge page at their end is little of them.
constexpr std::size_t kSharedBytesMax = std::size_t{8} << 20;
constexpr std::size_t kSharedMappingBytes = std::size_t{64} << 20;

std::size_t InPages(std::size_t size) { return (size + kPage - 1) / kPage * kPage; }

}  // namespace

class MemoryArena::Mapping {
 public:
  static absl::StatusOr<std::shared_ptr<const Mapping>> Make(std::size_t size, Pages pages) {
    // One huge page more than asked for, so that an aligned start is inside.
    const std::size_t slack = pages == Pages::kHuge ? kHugePage : 0;
    if (size > std::numeric_limits<std::size_t>::max() - slack) {
      return absl::ResourceExhaustedError(absl::StrCat("cannot map ", size, " bytes"));
    }
    void* const begin = mmap(nullptr, size + slack, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot map ", size, " bytes of memory: ", std::strerror(errno)));
    }
    return std::shared_ptr<const Mapping>(new Mapping(begin, size, slack));
  }
  ~Mapping() { munmap(begin_, size_); }

  std::byte* data() const { return data_; }

 private:
  Mapping(void* begin, std::size_t size, std::size_t slack) : begin_(begin), size_(size + slack) {
    void* aligned = begin;
    std::size_t space = size_;
    if (slack != 0) aligned = std::align(kHugePage, size, aligned, space);
    data_ = static_cast<std::byte*>(aligned);
    // Advice only: where huge pages are switched off, small ones serve.
    if (slack != 0) (void)madvise(data_, size, MADV_HUGEPAGE);
  }

  void* const begin_;
  const std::size_t size_;
  std::byte* data_;
};

// The mapping that the next small arenas are cut from. No address is used twice: a page that an
// arena gave back is zero, and its mapping goes with the last of its arenas.
class MemoryArena::Shared {
 public:
  static Shared& OfProcess() {
    static auto* const shared = new Shared;  // Outlives all arenas.
    return *shared;
  }

  absl::StatusOr<MemoryArena> Cut(std::size_t size) {
    const std::size_t taken = InPages(size);
    MutexLock lock(mu_);
    if (mapping_ == nullptr || taken > kSharedMappingBytes - used_) {
      EMBLA_ASSIGN_OR_RETURN(mapping_, Mapping::Make(kSharedMappingBytes, Pages::kHuge));
      used_ = 0;
    }
    MemoryArena arena;
    arena.mapping_ = mapping_;
    arena.data_ = mapping_->data() + used_;
    arena.size_ = size;
    used_ += taken;
    return arena;
  }

 private:
  Mutex mu_;
  std::shared_ptr<const Mapping> mapping_ ABSL_GUARDED_BY(mu_);
  std::size_t used_ ABSL_GUARDED_BY(mu_) = 0;
};

absl::StatusOr<MemoryArena> MemoryArena::Map(std::size_t size, Pages pages) {
  MemoryArena arena;
  if (size == 0) return arena;
  if (pages == Pages::kHuge && size <= kSharedBytesMax) return Shared::OfProcess().Cut(size);
  EMBLA_ASSIGN_OR_RETURN(arena.mapping_, Mapping::Make(size, pages));
  arena.data_ = arena.mapping_->data();
  arena.size_ = size;
  return arena;
}

MemoryArena& MemoryArena::operator=(MemoryArena&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  mapping_ = std::move(other.mapping_);
  return *this;
}

void MemoryArena::OfferPages() const {
  // Advice only: pages that the system cannot take stay.
  if (mapping_ != nullptr) (void)madvise(data_, InPages(size_), MADV_FREE);
}

void MemoryArena::Reset() {
  // Others may have the rest of the mapping.
  if (mapping_ != nullptr) (void)madvise(data_, InPages(size_), MADV_DONTNEED);
  mapping_.reset();
  data_ = nullptr;
  size_ = 0;
}

}  // namespace embla
