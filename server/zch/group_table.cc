#include "server/zch/group_table.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace embla::zch {
namespace {

constexpr std::uintptr_t kHugePage = std::uintptr_t{2} << 20;

std::uintptr_t RoundUp(std::uintptr_t value, std::uintptr_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

absl::StatusOr<GroupTable> GroupTable::Create(const SlotMapOptions& options) {
  GroupTable table;
  table.buckets_ = options.buckets;
  table.groups_per_bucket_ = options.groups_per_bucket();
  table.held_.resize(options.buckets);
  const std::size_t bytes = table.bytes_per_bucket() * options.buckets;
  table.mapping_bytes_ = bytes + kHugePage;
  table.mapping_ = mmap(nullptr, table.mapping_bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (table.mapping_ == MAP_FAILED) {
    table.mapping_ = nullptr;
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot map ", bytes, " bytes for ", options.slots(), " slots: ", std::strerror(errno)));
  }
  const auto address = RoundUp(reinterpret_cast<std::uintptr_t>(table.mapping_), kHugePage);
  table.groups_ = reinterpret_cast<SlotGroup*>(address);
  // Advice only: where huge pages are switched off, small ones serve.
  if (options.huge_pages) (void)madvise(table.groups_, bytes, MADV_HUGEPAGE);
  return table;
}

GroupTable::GroupTable(GroupTable&& other) noexcept
    : buckets_(other.buckets_),
      groups_per_bucket_(other.groups_per_bucket_),
      groups_(std::exchange(other.groups_, nullptr)),
      held_(std::move(other.held_)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(other.mapping_bytes_) {}

GroupTable::~GroupTable() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

void GroupTable::Drop(std::uint32_t bucket) {
  held_[bucket] = 0;
  const auto begin = reinterpret_cast<std::uintptr_t>(BucketBegin(bucket));
  const std::uintptr_t end = begin + bytes_per_bucket();
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t pages_begin = RoundUp(begin, page);
  const std::uintptr_t pages_end = end / page * page;
  void* const pages = reinterpret_cast<void*>(pages_begin);
  // Whole pages come back zeroed; the ends may be shared with neighbours.
  if (pages_begin >= pages_end || madvise(pages, pages_end - pages_begin, MADV_DONTNEED) != 0) {
    std::memset(BucketBegin(bucket), 0, bytes_per_bucket());
    return;
  }
  std::memset(reinterpret_cast<void*>(begin), 0, pages_begin - begin);
  std::memset(reinterpret_cast<void*>(pages_end), 0, end - pages_end);
}

}  // namespace embla::zch
