#include "core/base/heap.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"

namespace embla {
namespace {

// Larger blocks are mapped and unmapped one by one. The greatest value that malloc accepts.
constexpr int kMappedBlockBytes = 32 << 20;

}  // namespace

void KeepFewArenas() {
  if (std::getenv("MALLOC_ARENA_MAX") != nullptr) return;
  const unsigned int cores = std::thread::hardware_concurrency();
  ::mallopt(M_ARENA_MAX, static_cast<int>(std::max(cores / 8, 1u)));
}

absl::Status KeepHeap(std::size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  if (bytes > kKeptHeapBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a heap of ", bytes, " bytes cannot be kept, at most ", kKeptHeapBytesMax, " can"));
  }
  const bool is_set = ::mallopt(M_MMAP_THRESHOLD, kMappedBlockBytes) == 1 &&
                      ::mallopt(M_TRIM_THRESHOLD, static_cast<int>(bytes)) == 1;
  if (is_set) return absl::OkStatus();
  return absl::UnavailableError("malloc refuses the settings that keep the heap");
}

std::size_t FreeHeapBytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.fordblks;
}

}  // namespace embla
