#include "server/zch/slot_map.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "server/zch/bucket_block.h"
#include "server/zch/probe.h"

namespace embla::zch {

absl::StatusOr<std::unique_ptr<SlotMap>> SlotMap::Create(const SlotMapOptions& options) {
  EMBLA_RETURN_IF_ERROR(options.Validate());
  EMBLA_ASSIGN_OR_RETURN(GroupTable groups, GroupTable::Create(options));
  return std::unique_ptr<SlotMap>(new SlotMap(options, std::move(groups)));
}

SlotMap::SlotMap(const SlotMapOptions& options, GroupTable groups)
    : options_(options), groups_(std::move(groups)), buckets_(options.buckets) {}

absl::Status SlotMap::CheckBucket(std::uint32_t bucket) const {
  if (bucket < options_.buckets) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("bucket ", bucket, " of a table with ", options_.buckets));
}

absl::Status SlotMap::AddBucket(std::uint32_t bucket) {
  EMBLA_RETURN_IF_ERROR(CheckBucket(bucket));
  if (Holds(bucket)) return absl::AlreadyExistsError(absl::StrCat("bucket ", bucket, " is here"));
  groups_.Hold(bucket);
  buckets_[bucket] = std::make_unique<BucketState>(options_.eviction_history);
  return absl::OkStatus();
}

void SlotMap::AddAllBuckets() {
  for (std::uint32_t bucket = 0; bucket < options_.buckets; ++bucket) {
    if (!Holds(bucket)) EMBLA_CHECK(AddBucket(bucket).ok());
  }
}

absl::Status SlotMap::RemoveBucket(std::uint32_t bucket) {
  EMBLA_RETURN_IF_ERROR(CheckBucket(bucket));
  if (!Holds(bucket)) return absl::NotFoundError(absl::StrCat("bucket ", bucket, " is not here"));
  groups_.Drop(bucket);
  buckets_[bucket].reset();
  return absl::OkStatus();
}

void SlotMap::Find(std::span<const RowId> ids, std::span<ZchSlot> slots,
                   std::span<Outcome> outcomes) const {
  EMBLA_CHECK(slots.size() == ids.size() && outcomes.size() == ids.size());
  std::uint64_t hits = 0;
  std::uint64_t not_here = 0;
  ProbeAll<Touching::kNothing>(groups_, ids, [&](std::size_t i, const Probe& probe, int lane) {
    if (lane >= 0) {
      slots[i] = SlotAt(probe.group_number, lane);
      outcomes[i] = Outcome::kHit;
      ++hits;
    } else if (probe.group != nullptr) {
      slots[i] = ReservedSlotOf(options_, ids[i], probe.group_number);
      outcomes[i] = Outcome::kMissing;
    } else {
      slots[i] = kNoSlot;
      outcomes[i] = Outcome::kNotHere;
      ++not_here;
    }
  });
  // Relaxed: plain counts.
  read_hits_.fetch_add(hits, std::memory_order_relaxed);
  read_missing_.fetch_add(ids.size() - hits - not_here, std::memory_order_relaxed);
  not_here_.fetch_add(not_here, std::memory_order_relaxed);
}

Eviction SlotMap::Evict(const Expulsion& expulsion, Statistics& statistics) {
  SlotGroup& group = *groups_.At(expulsion.group_number);
  const int lane = expulsion.lane;
  const Eviction eviction{RowId{group.ids[lane]}, SlotAt(expulsion.group_number, lane),
                          expulsion.reason, group.last_steps[lane], expulsion.step};
  ClearLane(options_.policy, group, lane);
  Record(eviction, *buckets_[expulsion.group_number / groups_.groups_per_bucket()], statistics);
  return eviction;
}

void SlotMap::Remove(std::span<const RowId> ids, std::uint64_t step,
                     std::vector<Eviction>& evictions) {
  for (const RowId id : ids) {
    const Place place = groups_.PlaceOf(id);
    if (!Holds(place.bucket)) continue;
    const std::uint64_t number = groups_.GroupNumber(place);
    const SlotGroup& group = *groups_.At(number);
    const int lane = LaneOf(group, place, id);
    if (lane < 0) continue;
    evictions.push_back(Evict({number, lane, EvictionReason::kRemoved, step}, statistics_));
  }
}

template <typename Visit>
void SlotMap::ForEachBucket(BucketRange range, const Visit& visit) const {
  const std::uint32_t end = std::min(range.end, options_.buckets);
  for (std::uint32_t bucket = range.begin; bucket < end; ++bucket) {
    if (Holds(bucket)) visit(bucket);
  }
}

template <typename Choose>
void SlotMap::Sweep(std::uint32_t bucket, EvictionReason reason, std::uint64_t step,
                    const Choose& choose, std::vector<Eviction>& evictions) {
  const std::uint64_t begin = groups_.GroupNumber({bucket, 0, 0, 0});
  for (std::uint32_t g = 0; g < groups_.groups_per_bucket(); ++g) {
    const SlotGroup& group = *groups_.At(begin + g);
    for (std::uint64_t lanes = ~EmptyLanes(group); lanes != 0; lanes &= lanes - 1) {
      const int lane = std::countr_zero(lanes);
      if (!choose(group, lane)) continue;
      evictions.push_back(Evict({begin + g, lane, reason, step}, statistics_));
    }
  }
}

void SlotMap::EvictExpired(const Clock& clock, std::vector<Eviction>& evictions,
                           BucketRange range) {
  if (options_.policy != Policy::kTtl) return;
  const auto expired = [&](const SlotGroup& group, int lane) {
    return group.words[lane] <= clock.now;
  };
  ForEachBucket(range, [&](std::uint32_t bucket) {
    Sweep(bucket, EvictionReason::kExpired, clock.step, expired, evictions);
  });
}

void SlotMap::EvictIdle(std::uint64_t before_step, std::uint64_t step,
                        std::vector<Eviction>& evictions, BucketRange range) {
  const auto idle = [&](const SlotGroup& group, int lane) {
    return group.last_steps[lane] < before_step;
  };
  ForEachBucket(range, [&](std::uint32_t bucket) {
    Sweep(bucket, EvictionReason::kIdle, step, idle, evictions);
  });
}

void SlotMap::HalveCounts() {
  if (options_.policy != Policy::kLfu && options_.policy != Policy::kDistanceLfu) return;
  ForEachBucket({}, [&](std::uint32_t bucket) {
    SlotGroup* const groups = groups_.BucketBegin(bucket);
    for (std::uint32_t g = 0; g < groups_.groups_per_bucket(); ++g) {
      for (std::uint32_t& word : groups[g].words) word /= 2;
    }
  });
}

absl::StatusOr<Buffer> SlotMap::ExportBucket(std::uint32_t bucket) const {
  EMBLA_RETURN_IF_ERROR(CheckBucket(bucket));
  if (!Holds(bucket)) return absl::NotFoundError(absl::StrCat("bucket ", bucket, " is not here"));
  return EncodeBucket(options_, bucket, {groups_.BucketBegin(bucket), groups_.groups_per_bucket()},
                      *buckets_[bucket]);
}

absl::Status SlotMap::ImportBucket(std::span<const std::byte> block) {
  EMBLA_ASSIGN_OR_RETURN(BucketBlock decoded, DecodeBucket(options_, block));
  EMBLA_RETURN_IF_ERROR(AddBucket(decoded.bucket));
  std::memcpy(groups_.BucketBegin(decoded.bucket), decoded.groups.data(), decoded.groups.size());
  *buckets_[decoded.bucket] = std::move(decoded.state);
  return absl::OkStatus();
}

Explanation SlotMap::Explain(RowId id) const {
  const Place place = groups_.PlaceOf(id);
  if (!Holds(place.bucket)) {
    Explanation unknown;
    unknown.place = place;
    return unknown;
  }
  return ExplainIn(options_, id, *groups_.At(groups_.GroupNumber(place)), *buckets_[place.bucket]);
}

std::optional<RowId> SlotMap::IdAt(ZchSlot slot) const {
  const auto number = static_cast<std::uint64_t>(slot);
  const std::uint64_t group = number / kLanes;
  EMBLA_CHECK(group / groups_.groups_per_bucket() < options_.buckets);
  if (!groups_.Holds(static_cast<std::uint32_t>(group / groups_.groups_per_bucket()))) {
    return std::nullopt;
  }
  const SlotGroup& lanes = *groups_.At(group);
  if (lanes.tags[number % kLanes] == 0) return std::nullopt;
  return RowId{lanes.ids[number % kLanes]};
}

Statistics SlotMap::statistics() const {
  Statistics statistics = statistics_;
  statistics.read_hits = read_hits_.load(std::memory_order_relaxed);
  statistics.read_missing = read_missing_.load(std::memory_order_relaxed);
  statistics.not_here += not_here_.load(std::memory_order_relaxed);
  return statistics;
}

Survey SlotMap::TakeSurvey(std::uint64_t step, BucketRange range) const {
  Survey survey;
  ForEachBucket(range, [&](std::uint32_t bucket) {
    AddBucketTo(survey, options_, *buckets_[bucket]);
    for (std::uint32_t g = 0; g < groups_.groups_per_bucket(); ++g) {
      AddGroupTo(survey, options_, groups_.BucketBegin(bucket)[g], step);
    }
  });
  return survey;
}

std::uint64_t SlotMap::residents(std::uint32_t bucket) const {
  return Holds(bucket) ? buckets_[bucket]->residents : 0;
}

}  // namespace embla::zch
