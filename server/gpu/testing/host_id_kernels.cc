#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <vector>

#include "core/base/check.h"
#include "server/gpu/testing/host_kernels.h"
#include "server/zch/bucket_block.h"
#include "server/zch/candidate_block.h"
#include "server/zch/slot_map.h"

namespace embla::gpu {
namespace {

using zch::SlotGroup;
using zch::cuda::DeviceGroups;

// A map with the buckets that are here, and the way back.
class MapOverGroups {
 public:
  MapOverGroups(zch::SlotMapOptions options, const DeviceGroups& groups)
      : options_(std::move(options)), groups_(groups) {
    options_.huge_pages = false;
    auto map = zch::SlotMap::Create(options_);
    EMBLA_CHECK(map.ok());
    map_ = *std::move(map);
    for (std::uint32_t bucket = 0; bucket < groups.buckets; ++bucket) {
      if (groups.held[bucket] != 0) CopyIn(bucket);
    }
  }

  zch::SlotMap& operator*() const { return *map_; }
  zch::SlotMap* operator->() const { return map_.get(); }

  void CopyBack() const {
    for (std::uint32_t bucket = 0; bucket < groups_.buckets; ++bucket) {
      if (groups_.held[bucket] == 0) continue;
      const auto block = map_->ExportBucket(bucket);
      EMBLA_CHECK(block.ok());
      const auto decoded = zch::DecodeBucket(options_, block->bytes());
      EMBLA_CHECK(decoded.ok());
      std::memcpy(BucketAt(bucket), decoded->groups.data(), decoded->groups.size());
      const auto waiting =
          zch::EncodeCandidates(groups_.candidates.layout, decoded->state.candidates);
      if (!waiting.empty()) std::memcpy(CandidatesOf(bucket), waiting.data(), waiting.size());
    }
  }

 private:
  std::byte* BucketAt(std::uint32_t bucket) const {
    const std::uint64_t number = std::uint64_t{bucket} * groups_.groups_per_bucket;
    return groups_.groups + (number - groups_.first_group) * sizeof(SlotGroup);
  }

  std::byte* CandidatesOf(std::uint32_t bucket) const {
    const std::uint64_t first = groups_.first_group / groups_.groups_per_bucket;
    return groups_.candidates.blocks + (bucket - first) * groups_.candidates.layout.bytes();
  }

  void CopyIn(std::uint32_t bucket) {
    std::vector<SlotGroup> groups(groups_.groups_per_bucket);
    std::memcpy(groups.data(), BucketAt(bucket), groups.size() * sizeof(SlotGroup));
    zch::BucketState state(options_.eviction_history);
    for (const SlotGroup& group : groups) {
      state.residents += static_cast<std::uint64_t>(std::popcount(~zch::EmptyLanes(group)));
    }
    if (options_.admission == zch::Admission::kCount) {
      const zch::CandidateLayout& layout = groups_.candidates.layout;
      state.candidates = zch::DecodeCandidates(layout, {CandidatesOf(bucket), layout.bytes()});
    }
    const Buffer block = zch::EncodeBucket(options_, bucket, groups, state);
    EMBLA_CHECK(map_->ImportBucket(block.bytes()).ok());
  }

  zch::SlotMapOptions options_;
  const DeviceGroups groups_;
  std::unique_ptr<zch::SlotMap> map_;
};

// Options for a verb that needs the table's shape and reserved lanes only.
zch::SlotMapOptions ShapeOf(const DeviceGroups& groups) {
  zch::SlotMapOptions options;
  options.buckets = groups.buckets;
  options.capacity =
      static_cast<std::int64_t>(groups.count()) * static_cast<std::int64_t>(zch::kLanes);
  options.reserved_lanes = groups.reserved_lanes;
  options.policy = zch::Policy::kLfu;  // Words may be anything.
  return options;
}

template <typename T>
std::span<const T> SpanOf(const T* data, std::size_t count) {
  return data == nullptr ? std::span<const T>() : std::span(data, count);
}

void PutEvictions(const std::vector<zch::Eviction>& evictions, zch::cuda::DeviceEviction* out,
                  std::uint32_t* count) {
  *count = static_cast<std::uint32_t>(evictions.size());
  for (const zch::Eviction& each : evictions) {
    *out++ = {ToInt(each.id), ToInt(each.slot), each.last_step,
              static_cast<std::uint64_t>(each.reason)};
  }
}

int Find(const DeviceGroups& groups, const std::int64_t* ids, std::size_t count,
         std::int64_t* slots, std::uint8_t* outcomes, kernels::cuda::StreamHandle) {
  const MapOverGroups map(ShapeOf(groups), groups);
  map->Find({reinterpret_cast<const RowId*>(ids), count},
            {reinterpret_cast<zch::ZchSlot*>(slots), count},
            {reinterpret_cast<zch::Outcome*>(outcomes), count});
  return 0;
}

// The simulation needs no workspace, but asks for some, to see that it is passed on.
int ApplyBytes(std::size_t count, std::size_t* bytes) {
  *bytes = count * 60 + 1;
  return 0;
}

int Apply(const zch::SlotMapOptions& options, const DeviceGroups& groups,
          const zch::cuda::DeviceBatch& batch, const zch::cuda::DeviceAnswer& answer,
          kernels::cuda::Workspace, kernels::cuda::StreamHandle) {
  const MapOverGroups map(options, groups);
  zch::Answer found;
  map->Apply({SpanOf(reinterpret_cast<const RowId*>(batch.ids), batch.count),
              SpanOf(batch.counts, batch.count), SpanOf(batch.ttls, batch.count), batch.clock,
              batch.admits_all},
             found);
  map.CopyBack();
  for (std::size_t i = 0; i < batch.count; ++i) {
    answer.slots[i] = ToInt(found.slots[i]);
    answer.outcomes[i] = static_cast<std::uint8_t>(found.outcomes[i]);
  }
  PutEvictions(found.evictions, answer.evictions, answer.eviction_count);
  *answer.collisions_avoided += map->statistics().collisions_avoided;
  return 0;
}

int SweepBytes(const DeviceGroups& groups, std::uint32_t bucket_count, std::size_t* bytes) {
  *bytes = std::size_t{bucket_count} * groups.groups_per_bucket + 1;
  return 0;
}

int Sweep(const zch::SlotMapOptions& options, const DeviceGroups& groups,
          const zch::cuda::DeviceSweep& sweep, const zch::cuda::DeviceSweptIds& swept,
          kernels::cuda::Workspace, kernels::cuda::StreamHandle) {
  const MapOverGroups map(options, groups);
  std::vector<zch::Eviction> evictions;
  const zch::BucketRange buckets{sweep.bucket_begin, sweep.bucket_end};
  if (sweep.reason == zch::EvictionReason::kExpired) {
    map->EvictExpired({0, sweep.now}, evictions, buckets);
  } else {
    map->EvictIdle(sweep.before_step, 0, evictions, buckets);
  }
  map.CopyBack();
  PutEvictions(evictions, swept.evictions, swept.count);
  return 0;
}

int HalveCounts(const zch::SlotMapOptions& options, const DeviceGroups& groups,
                kernels::cuda::StreamHandle) {
  const MapOverGroups map(options, groups);
  map->HalveCounts();
  map.CopyBack();
  return 0;
}

}  // namespace

const IdKernels& HostIdKernels() {
  static constexpr IdKernels kKernels = {.find = &Find,
                                         .apply_bytes = &ApplyBytes,
                                         .apply = &Apply,
                                         .sweep_bytes = &SweepBytes,
                                         .sweep = &Sweep,
                                         .halve_counts = &HalveCounts};
  return kKernels;
}

}  // namespace embla::gpu
