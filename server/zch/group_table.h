// The memory of all groups of a table, at fixed addresses: bucket b begins at b *
// bytes_per_bucket(). Address space is reserved for every bucket; pages exist only for buckets that
// were written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/base/memory_arena.h"
#include "core/plan/id_place.h"
#include "server/zch/slot_group.h"
#include "server/zch/slot_map_options.h"

namespace embla::zch {

class GroupTable {
 public:
  // ResourceExhausted when the system has no address space left.
  static absl::StatusOr<GroupTable> Create(const SlotMapOptions& options);
  bool Holds(std::uint32_t bucket) const { return held_[bucket] != 0; }
  // The bucket is empty then.
  void Hold(std::uint32_t bucket) { held_[bucket] = 1; }
  // Empties the bucket and gives its pages back.
  void Drop(std::uint32_t bucket);

  Place PlaceOf(RowId id) const { return zch::PlaceOf(id, buckets_, groups_per_bucket_); }
  // Counted over the whole table: bucket * groups_per_bucket + group within the bucket.
  std::uint64_t GroupNumber(const Place& place) const {
    return std::uint64_t{place.bucket} * groups_per_bucket_ + place.group;
  }
  SlotGroup* At(std::uint64_t group_number) const { return groups_ + group_number; }
  SlotGroup* BucketBegin(std::uint32_t bucket) const {
    return groups_ + std::size_t{bucket} * groups_per_bucket_;
  }

  std::uint32_t buckets() const { return buckets_; }
  std::uint32_t groups_per_bucket() const { return groups_per_bucket_; }
  std::size_t bytes_per_bucket() const {
    return std::size_t{groups_per_bucket_} * sizeof(SlotGroup);
  }

 private:
  GroupTable() = default;

  std::uint32_t buckets_ = 0;
  std::uint32_t groups_per_bucket_ = 0;
  std::vector<std::uint8_t> held_;  // By bucket.
  MemoryArena memory_;
  SlotGroup* groups_ = nullptr;  // In memory_.
};

}  // namespace embla::zch
