#include "tools/load/memory_ceiling.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "bench/memory/random_rows.h"
#include "core/base/check.h"

namespace embla::load {

MemoryCeiling::MemoryCeiling(IdDistribution distribution, std::int64_t rows, int dim,
                             std::int64_t bytes_max)
    : distribution_(std::move(distribution)),
      row_bytes_(sizeof(float) * dim),
      rows_(std::clamp<std::int64_t>(bytes_max / static_cast<std::int64_t>(row_bytes_), 1, rows)),
      memory_(nullptr, Unmap{0}) {
  const std::size_t bytes = rows_ * row_bytes_;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EMBLA_CHECK(memory != MAP_FAILED);
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 1, bytes);
  memory_ = std::unique_ptr<std::byte, Unmap>(static_cast<std::byte*>(memory), Unmap{bytes});
}

void MemoryCeiling::Unmap::operator()(std::byte* memory) const { ::munmap(memory, bytes); }

double MemoryCeiling::Run(std::size_t count) {
  const bench::RowArray rows = {memory_.get(), row_bytes_, row_bytes_};
  std::vector<std::uint32_t> slots(count);
  double best = 0.0;
  for (const std::size_t prefetch_rows : bench::kCeilingPrefetchRows) {
    for (std::uint32_t& slot : slots) {
      slot = static_cast<std::uint32_t>(distribution_.Draw(random_) % rows_);
    }
    const auto began = std::chrono::steady_clock::now();
    sum_ ^= bench::XorRows(rows, slots, prefetch_rows);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
    best = std::max(best, static_cast<double>(count) / seconds.count());
  }
  return best;
}

}  // namespace embla::load
