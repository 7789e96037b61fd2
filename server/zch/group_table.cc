#include "server/zch/group_table.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "core/base/status_macros.h"

namespace embla::zch {

absl::StatusOr<GroupTable> GroupTable::Create(const SlotMapOptions& options) {
  GroupTable table;
  table.buckets_ = options.buckets;
  table.groups_per_bucket_ = options.groups_per_bucket();
  table.held_.resize(options.buckets);
  EMBLA_ASSIGN_OR_RETURN(table.memory_,
                         MemoryArena::Map(table.bytes_per_bucket() * options.buckets,
                                          options.huge_pages ? MemoryArena::Pages::kHuge
                                                             : MemoryArena::Pages::kSmall));
  table.groups_ = reinterpret_cast<SlotGroup*>(table.memory_.data());
  return table;
}

void GroupTable::Drop(std::uint32_t bucket) {
  held_[bucket] = 0;
  auto* const begin = reinterpret_cast<std::byte*>(BucketBegin(bucket));
  const std::size_t bytes = bytes_per_bucket();
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t head = (page - reinterpret_cast<std::uintptr_t>(begin) % page) % page;
  const std::size_t pages = head < bytes ? (bytes - head) / page * page : 0;
  // Whole pages come back zeroed; the ends may be shared with neighbours.
  if (pages == 0 || madvise(begin + head, pages, MADV_DONTNEED) != 0) {
    std::memset(begin, 0, bytes);
    return;
  }
  std::memset(begin, 0, head);
  std::memset(begin + head + pages, 0, bytes - head - pages);
}

}  // namespace embla::zch
