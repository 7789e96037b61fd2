// Inspects the groups of a map on a GPU, and adds and removes buckets with their groups: groups
// travel as they are.
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "server/zch/bucket_block.h"
#include "server/zch/device/device_id_map.h"

namespace embla::zch {

absl::Status DeviceIdMap::Read(const std::byte* from, std::span<std::byte> to) const {
  return lanes_.Run(
      to.size(), 1,
      [&](Lane& lane, std::size_t begin, std::size_t end) -> absl::Status {
        EMBLA_RETURN_IF_ERROR(lane.out.Reset(device(), end - begin));
        std::byte* const host = lane.out.Take<std::byte>(end - begin).host;
        return lane.stream->CopyToHost(host, from + begin, end - begin);
      },
      [&](Lane& lane, std::size_t begin, std::size_t end) {
        std::memcpy(to.data() + begin, lane.out.host(), end - begin);
      });
}

absl::Status DeviceIdMap::Write(std::byte* to, std::span<const std::byte> from) const {
  return lanes_.Run(
      from.size(), 1,
      [&](Lane& lane, std::size_t begin, std::size_t end) -> absl::Status {
        EMBLA_RETURN_IF_ERROR(lane.in.Reset(device(), end - begin));
        std::byte* const host = lane.in.Take<std::byte>(end - begin).host;
        std::memcpy(host, from.data() + begin, end - begin);
        return lane.stream->CopyToDevice(to + begin, host, end - begin);
      },
      [](Lane&, std::size_t, std::size_t) {});
}

absl::Status DeviceIdMap::ReadGroups(std::uint64_t group_number,
                                     std::span<SlotGroup> groups) const {
  EMBLA_RETURN_IF_ERROR(SendBuckets());
  return Read(GroupOnDevice(group_number), std::as_writable_bytes(groups));
}

absl::StatusOr<BucketState> DeviceIdMap::ReadState(std::uint32_t bucket) const {
  EMBLA_RETURN_IF_ERROR(SendBuckets());
  BucketState state = *buckets_[bucket];
  std::vector<std::byte> block(candidates_.bytes());
  EMBLA_RETURN_IF_ERROR(Read(CandidatesOnDevice(bucket), block));
  state.candidates = DecodeCandidates(candidates_, block);
  return state;
}

absl::Status DeviceIdMap::Remove(std::span<const RowId> ids, std::uint64_t step,
                                 std::vector<Eviction>& evictions) {
  for (const RowId id : ids) EMBLA_RETURN_IF_ERROR(RemoveOne(id, step, evictions));
  return absl::OkStatus();
}

absl::Status DeviceIdMap::RemoveOne(RowId id, std::uint64_t step,
                                    std::vector<Eviction>& evictions) {
  const Place place = PlaceOf(id, options_.buckets, groups_per_bucket_);
  if (!Holds(place.bucket)) return absl::OkStatus();
  const std::uint64_t number = GroupNumber(options_, place);
  SlotGroup group;
  EMBLA_RETURN_IF_ERROR(ReadGroups(number, {&group, 1}));
  const int lane = LaneOf(group, place, id);
  if (lane < 0) return absl::OkStatus();
  const Eviction eviction{id, SlotAt(number, lane), EvictionReason::kRemoved,
                          group.last_steps[lane], step};
  ClearLane(options_.policy, group, lane);
  EMBLA_RETURN_IF_ERROR(
      StopOnError(Write(GroupOnDevice(number), std::as_bytes(std::span(&group, 1)))));
  Record(eviction, *buckets_[place.bucket], statistics_);
  evictions.push_back(eviction);
  return absl::OkStatus();
}

absl::StatusOr<Buffer> DeviceIdMap::ExportBucket(std::uint32_t bucket) const {
  EMBLA_RETURN_IF_ERROR(CheckHeld(bucket));
  std::vector<SlotGroup> groups(groups_per_bucket_);
  EMBLA_RETURN_IF_ERROR(ReadGroups(std::uint64_t{bucket} * groups_per_bucket_, groups));
  EMBLA_ASSIGN_OR_RETURN(const BucketState state, ReadState(bucket));
  return EncodeBucket(options_, bucket, groups, state);
}

absl::Status DeviceIdMap::ImportBucket(std::span<const std::byte> block) {
  EMBLA_ASSIGN_OR_RETURN(BucketBlock decoded, DecodeBucket(options_, block));
  const std::uint32_t bucket = decoded.bucket;
  EMBLA_RETURN_IF_ERROR(AddBucket(bucket));
  has_old_ids_[bucket] = 0;  // All of its memory is written.
  absl::Status written =
      Write(GroupOnDevice(std::uint64_t{bucket} * groups_per_bucket_), decoded.groups);
  if (written.ok()) {
    written =
        Write(CandidatesOnDevice(bucket), EncodeCandidates(candidates_, decoded.state.candidates));
  }
  if (!written.ok()) {
    EMBLA_CHECK(RemoveBucket(bucket).ok());
    return written;
  }
  decoded.state.candidates = {};
  *buckets_[bucket] = std::move(decoded.state);
  return absl::OkStatus();
}

absl::StatusOr<Explanation> DeviceIdMap::Explain(RowId id) const {
  const Place place = PlaceOf(id, options_.buckets, groups_per_bucket_);
  if (!Holds(place.bucket)) {
    Explanation unknown;
    unknown.place = place;
    return unknown;
  }
  SlotGroup group;
  EMBLA_RETURN_IF_ERROR(ReadGroups(GroupNumber(options_, place), {&group, 1}));
  EMBLA_ASSIGN_OR_RETURN(const BucketState state, ReadState(place.bucket));
  return ExplainIn(options_, id, group, state);
}

absl::Status DeviceIdMap::IdsAt(ZchSlot begin, std::span<std::optional<RowId>> ids) const {
  if (ids.empty()) return device().health();
  const auto first = static_cast<std::uint64_t>(ToInt(begin));
  const std::uint64_t first_group = first / kLanes;
  std::vector<SlotGroup> groups((first + ids.size() - 1) / kLanes - first_group + 1);
  EMBLA_CHECK(CheckBucket(static_cast<std::uint32_t>(first_group / groups_per_bucket_)).ok());
  EMBLA_CHECK(CheckBucket(static_cast<std::uint32_t>((first_group + groups.size() - 1) /
                                                     groups_per_bucket_))
                  .ok());
  EMBLA_RETURN_IF_ERROR(ReadGroups(first_group, groups));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint64_t slot = first + i;
    const SlotGroup& group = groups[slot / kLanes - first_group];
    const auto bucket = static_cast<std::uint32_t>(slot / slots_per_bucket_);
    ids[i].reset();
    if (Holds(bucket) && group.tags[slot % kLanes] != 0) ids[i] = RowId{group.ids[slot % kLanes]};
  }
  return absl::OkStatus();
}

absl::StatusOr<Survey> DeviceIdMap::TakeSurvey(std::uint64_t step, BucketRange range) const {
  EMBLA_RETURN_IF_ERROR(device().health());
  range = Clamp(range);
  Survey survey;
  std::vector<SlotGroup> groups(groups_per_bucket_);
  for (std::uint32_t bucket = range.begin; bucket < range.end; ++bucket) {
    if (!Holds(bucket)) continue;
    EMBLA_RETURN_IF_ERROR(ReadGroups(std::uint64_t{bucket} * groups_per_bucket_, groups));
    EMBLA_ASSIGN_OR_RETURN(const BucketState state, ReadState(bucket));
    AddBucketTo(survey, options_, state);
    for (const SlotGroup& group : groups) AddGroupTo(survey, options_, group, step);
  }
  return survey;
}

}  // namespace embla::zch
