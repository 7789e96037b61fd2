// Shared by the tests of the slot map.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "server/zch/slot_map.h"

namespace embla::zch {

// Two groups in each of four buckets.
inline SlotMapOptions SmallOptions(Policy policy = Policy::kLru) {
  SlotMapOptions options;
  options.buckets = 4;
  options.capacity = 4 * 2 * kLanes;
  options.policy = policy;
  options.ttl_ticks = 10;
  options.huge_pages = false;
  return options;
}

inline std::unique_ptr<SlotMap> FullMap(const SlotMapOptions& options) {
  auto map = SlotMap::Create(options);
  EMBLA_CHECK(map.ok());
  (*map)->AddAllBuckets();
  return *std::move(map);
}

inline std::vector<RowId> RowIds(const std::vector<std::int64_t>& numbers) {
  std::vector<RowId> ids;
  for (const std::int64_t number : numbers) ids.push_back(RowId{number});
  return ids;
}

// `count` ids that all belong to the first group of bucket 0, by ascending number.
inline std::vector<RowId> IdsOfOneGroup(const SlotMapOptions& options, std::size_t count) {
  std::vector<RowId> ids;
  for (std::int64_t number = 0; ids.size() < count; ++number) {
    const Place place = PlaceOf(RowId{number}, options.buckets, options.groups_per_bucket());
    if (place.bucket == 0 && place.group == 0) ids.push_back(RowId{number});
  }
  return ids;
}

inline Answer ApplyAt(SlotMap& map, const std::vector<RowId>& ids, Clock clock) {
  Answer answer;
  map.Apply({ids, {}, {}, clock}, answer);
  return answer;
}

inline bool HasSlot(const SlotMap& map, RowId id) { return map.Explain(id).slot != kNoSlot; }

struct Found {
  std::vector<ZchSlot> slots;
  std::vector<Outcome> outcomes;
};
inline Found FindIn(const SlotMap& map, const std::vector<RowId>& ids) {
  Found found{std::vector<ZchSlot>(ids.size()), std::vector<Outcome>(ids.size())};
  map.Find(ids, found.slots, found.outcomes);
  return found;
}

// A loop on `threads` threads that meet their ranges in an order drawn from `seed`.
class ShuffledThreads {
 public:
  ShuffledThreads(std::size_t threads, std::uint64_t seed) : threads_(threads), random_(seed) {}

  void operator()(std::size_t n, std::size_t grain, RangeFunction fn) const {
    std::vector<std::pair<std::size_t, std::size_t>> ranges;
    for (std::size_t begin = 0; begin < n; begin += grain) {
      ranges.emplace_back(begin, std::min(begin + grain, n));
    }
    std::shuffle(ranges.begin(), ranges.end(), random_);
    std::vector<std::thread> workers;
    for (std::size_t t = 0; t < threads_; ++t) {
      workers.emplace_back([this, t, &ranges, fn] {
        for (std::size_t i = t; i < ranges.size(); i += threads_) {
          fn(ranges[i].first, ranges[i].second);
        }
      });
    }
    for (auto& worker : workers) worker.join();
  }

 private:
  std::size_t threads_;
  mutable std::mt19937_64 random_;
};

inline std::vector<std::byte> BlockOf(const SlotMap& map, std::uint32_t bucket) {
  const auto block = map.ExportBucket(bucket);
  EMBLA_CHECK(block.ok());
  return {block->bytes().begin(), block->bytes().end()};
}

}  // namespace embla::zch
