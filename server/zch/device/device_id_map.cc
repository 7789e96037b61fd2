#include "server/zch/device/device_id_map.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "server/gpu/kernel_table.h"

namespace embla::zch {
namespace {

// Slots swept at once, unless a bucket has more: bounds the scratch memory to about 40 MB.
constexpr std::uint32_t kSlotsSweptAtOnce = std::uint32_t{1} << 20;
constexpr std::size_t kWorkspaceAlignment = 256;

// Bytes of a batch of `count` ids on the way to the device.
constexpr std::size_t BatchInBytes(std::size_t count) {
  return count * (sizeof(RowId) + 2 * sizeof(std::uint32_t));
}
constexpr std::size_t BatchOutBytes(std::size_t count) {
  return count * (sizeof(ZchSlot) + sizeof(Outcome)) + 2 * sizeof(std::uint64_t);
}

absl::Status CheckRange(const SlotMapOptions& options, BucketRange buckets) {
  if (buckets.begin < buckets.end && buckets.end <= options.buckets) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("buckets [", buckets.begin, ", ", buckets.end,
                                                 ") of a table with ", options.buckets));
}

// Zeros, which are zeros in any type. Requires: `bytes` is a multiple of 4.
absl::Status Clear(gpu::Stream& stream, const gpu::KernelTable& kernels, std::byte* data,
                   std::size_t bytes) {
  return stream.Launch("Fill", kernels.fill, reinterpret_cast<float*>(data), bytes / sizeof(float),
                       0.0f);
}

const std::int64_t* PutIds(LaneCargo& cargo, std::span<const RowId> ids) {
  return reinterpret_cast<const std::int64_t*>(cargo.Put(ids));
}

}  // namespace

bool DeviceIdMap::CanHold(const SlotMapOptions& options) {
  const std::uint64_t groups = std::uint64_t{options.buckets} * options.groups_per_bucket();
  return groups < 0xffffffff;
}

absl::StatusOr<std::unique_ptr<IdMap>> DeviceIdMap::Create(const SlotMapOptions& options,
                                                           BucketRange buckets,
                                                           MemoryBudget& budget,
                                                           DeviceLanes& lanes) {
  EMBLA_RETURN_IF_ERROR(options.Validate());
  EMBLA_RETURN_IF_ERROR(CheckRange(options, buckets));
  EMBLA_CHECK(CanHold(options));
  gpu::Device& device = lanes.device();
  const std::size_t count = buckets.end - buckets.begin;
  const std::size_t group_bytes = count * options.groups_per_bucket() * sizeof(SlotGroup);
  const std::size_t candidate_bytes = count * CandidateLayoutOf(options).bytes();
  Arenas memory;
  EMBLA_ASSIGN_OR_RETURN(memory.grant, budget.Take(group_bytes + candidate_bytes));
  EMBLA_ASSIGN_OR_RETURN(memory.groups, device.Allocate(group_bytes));
  EMBLA_ASSIGN_OR_RETURN(memory.candidates, device.Allocate(candidate_bytes));
  EMBLA_ASSIGN_OR_RETURN(memory.held, device.Allocate(options.buckets));
  EMBLA_ASSIGN_OR_RETURN(memory.collisions_avoided, device.Allocate(sizeof(std::uint64_t)));
  // On a stream of its own: the lanes may be in use.
  EMBLA_ASSIGN_OR_RETURN(const std::unique_ptr<gpu::Stream> stream, device.NewStream());
  const gpu::KernelTable& kernels = device.kernels();
  absl::Status status = Clear(*stream, kernels, memory.groups.data(), group_bytes);
  status.Update(Clear(*stream, kernels, memory.candidates.data(), candidate_bytes));
  status.Update(Clear(*stream, kernels, memory.collisions_avoided.data(), sizeof(std::uint64_t)));
  // Also after an error: the memory may go when this returns.
  EMBLA_RETURN_IF_ERROR(stream->Synchronize());
  EMBLA_RETURN_IF_ERROR(status);
  return std::unique_ptr<IdMap>(new DeviceIdMap(options, buckets, std::move(memory), lanes));
}

DeviceIdMap::DeviceIdMap(const SlotMapOptions& options, BucketRange buckets, Arenas memory,
                         DeviceLanes& lanes)
    : options_(options),
      groups_per_bucket_(options.groups_per_bucket()),
      slots_per_bucket_(options.slots_per_bucket()),
      candidates_(CandidateLayoutOf(options)),
      buckets_here_(buckets),
      lanes_(lanes),
      kernels_(lanes.device().kernels()),
      memory_(std::move(memory)),
      buckets_(options.buckets),
      has_old_ids_(options.buckets) {}

cuda::DeviceGroups DeviceIdMap::groups() const {
  cuda::DeviceGroups groups;
  groups.groups = memory_.groups.data();
  groups.held = memory_.held.As<std::uint8_t>();
  groups.buckets = options_.buckets;
  groups.groups_per_bucket = groups_per_bucket_;
  groups.reserved_lanes = options_.reserved_lanes;
  groups.first_group = std::uint64_t{buckets_here_.begin} * groups_per_bucket_;
  groups.candidates = {memory_.candidates.data(), candidates_, options_.candidates_per_bucket()};
  return groups;
}

std::byte* DeviceIdMap::GroupOnDevice(std::uint64_t group_number) const {
  return memory_.groups.data() + (group_number - groups().first_group) * sizeof(SlotGroup);
}

std::byte* DeviceIdMap::CandidatesOnDevice(std::uint32_t bucket) const {
  return memory_.candidates.data() + (bucket - buckets_here_.begin) * candidates_.bytes();
}

absl::Status DeviceIdMap::CheckBucket(std::uint32_t bucket) const {
  if (bucket >= buckets_here_.begin && bucket < buckets_here_.end) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("bucket ", bucket, " of a slice with buckets [",
                                                 buckets_here_.begin, ", ", buckets_here_.end,
                                                 ") of ", options_.buckets));
}

absl::Status DeviceIdMap::CheckHeld(std::uint32_t bucket) const {
  EMBLA_RETURN_IF_ERROR(CheckBucket(bucket));
  if (Holds(bucket)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("bucket ", bucket, " is not here"));
}

BucketRange DeviceIdMap::Clamp(BucketRange range) const {
  return {std::max(range.begin, buckets_here_.begin), std::min(range.end, buckets_here_.end)};
}

absl::Status DeviceIdMap::StopOnError(const absl::Status& status) const {
  return status.ok() ? status : device().Stop(status);
}

absl::Status DeviceIdMap::AddBucket(std::uint32_t bucket) {
  EMBLA_RETURN_IF_ERROR(CheckBucket(bucket));
  if (Holds(bucket)) return absl::AlreadyExistsError(absl::StrCat("bucket ", bucket, " is here"));
  buckets_[bucket] = std::make_unique<BucketState>(options_.eviction_history);
  buckets_changed_ = true;
  return absl::OkStatus();
}

absl::Status DeviceIdMap::RemoveBucket(std::uint32_t bucket) {
  EMBLA_RETURN_IF_ERROR(CheckHeld(bucket));
  buckets_[bucket].reset();
  has_old_ids_[bucket] = 1;
  buckets_changed_ = true;
  return absl::OkStatus();
}

absl::Status DeviceIdMap::RunOnce(absl::FunctionRef<absl::Status(Lane&)> queue) const {
  return lanes_.Run(
      1, 0, [&](Lane& lane, std::size_t, std::size_t) { return queue(lane); },
      [](Lane&, std::size_t, std::size_t) {});
}

std::size_t DeviceIdMap::ScratchBytes(std::size_t evictions, std::size_t workspace_bytes) {
  const std::size_t bytes = evictions * sizeof(cuda::DeviceEviction);
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment +
         workspace_bytes;
}

DeviceIdMap::Scratch DeviceIdMap::ScratchOf(std::size_t evictions,
                                            std::size_t workspace_bytes) const {
  std::byte* const memory = lanes_.scratch();
  return {reinterpret_cast<cuda::DeviceEviction*>(memory),
          {memory + ScratchBytes(evictions, 0), workspace_bytes}};
}

absl::StatusOr<std::size_t> DeviceIdMap::ApplyBytes(std::size_t ids) const {
  return device().WorkspaceBytes("ApplyBytes", kernels_.ids.apply_bytes, ids);
}

absl::StatusOr<std::size_t> DeviceIdMap::SweepBytes(std::uint32_t buckets) const {
  return device().WorkspaceBytes("SweepBytes", kernels_.ids.sweep_bytes, groups(), buckets);
}

absl::Status DeviceIdMap::ReserveApply(std::size_t ids) {
  EMBLA_ASSIGN_OR_RETURN(const std::size_t bytes, ApplyBytes(ids));
  return lanes_.Reserve({std::max<std::size_t>(BatchInBytes(ids), options_.buckets),
                         BatchOutBytes(ids), ScratchBytes(ids, bytes)});
}

std::uint32_t DeviceIdMap::BucketsSweptAtOnce(BucketRange range) const {
  return std::min(std::max(1u, kSlotsSweptAtOnce / slots_per_bucket_), range.end - range.begin);
}

absl::Status DeviceIdMap::ReserveSweep() {
  const std::uint32_t buckets = BucketsSweptAtOnce(buckets_here_);
  EMBLA_ASSIGN_OR_RETURN(const std::size_t bytes, SweepBytes(buckets));
  return lanes_.Reserve({options_.buckets, sizeof(std::uint32_t),
                         ScratchBytes(std::size_t{buckets} * slots_per_bucket_, bytes)});
}

absl::Status DeviceIdMap::SendBuckets() const {
  if (!buckets_changed_) return device().health();
  EMBLA_RETURN_IF_ERROR(RunOnce([&](Lane& lane) -> absl::Status {
    EMBLA_RETURN_IF_ERROR(lane.in.Reset(device(), options_.buckets));
    const auto held = lane.in.Take<std::uint8_t>(options_.buckets);
    for (std::uint32_t b = 0; b < options_.buckets; ++b) held.host[b] = Holds(b) ? 1 : 0;
    EMBLA_RETURN_IF_ERROR(
        lane.stream->CopyToDevice(memory_.held.data(), held.host, options_.buckets));
    for (std::uint32_t b = buckets_here_.begin; b < buckets_here_.end; ++b) {
      if (!Holds(b) || has_old_ids_[b] == 0) continue;
      EMBLA_RETURN_IF_ERROR(Clear(*lane.stream, kernels_,
                                  GroupOnDevice(std::uint64_t{b} * groups_per_bucket_),
                                  groups_per_bucket_ * sizeof(SlotGroup)));
      EMBLA_RETURN_IF_ERROR(
          Clear(*lane.stream, kernels_, CandidatesOnDevice(b), candidates_.bytes()));
    }
    return absl::OkStatus();
  }));
  for (std::uint32_t b = 0; b < options_.buckets; ++b) {
    if (Holds(b)) has_old_ids_[b] = 0;
  }
  buckets_changed_ = false;
  return absl::OkStatus();
}

absl::Status DeviceIdMap::Find(std::span<const RowId> ids, std::span<ZchSlot> slots,
                               std::span<Outcome> outcomes) const {
  EMBLA_RETURN_IF_ERROR(FindUncounted(ids, slots, outcomes));
  for (const Outcome outcome : outcomes) {
    statistics_.read_hits += outcome == Outcome::kHit;
    statistics_.read_missing += outcome == Outcome::kMissing;
    statistics_.not_here += outcome == Outcome::kNotHere;
  }
  return absl::OkStatus();
}

absl::Status DeviceIdMap::Locate(std::span<const RowId> ids, std::span<ZchSlot> slots) const {
  std::vector<Outcome> outcomes(ids.size());
  EMBLA_RETURN_IF_ERROR(FindUncounted(ids, slots, outcomes));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (outcomes[i] != Outcome::kHit) slots[i] = kNoSlot;
  }
  return absl::OkStatus();
}

absl::Status DeviceIdMap::FindUncounted(std::span<const RowId> ids, std::span<ZchSlot> slots,
                                        std::span<Outcome> outcomes) const {
  EMBLA_CHECK(slots.size() == ids.size() && outcomes.size() == ids.size());
  EMBLA_RETURN_IF_ERROR(SendBuckets());
  constexpr std::size_t kAnswerBytes = sizeof(ZchSlot) + sizeof(Outcome);
  return lanes_.Run(
      ids.size(), kAnswerBytes,
      [&](Lane& lane, std::size_t begin, std::size_t end) -> absl::Status {
        const std::size_t count = end - begin;
        EMBLA_RETURN_IF_ERROR(lane.in.Reset(device(), count * sizeof(RowId)));
        EMBLA_RETURN_IF_ERROR(lane.out.Reset(device(), count * kAnswerBytes));
        const std::int64_t* const piece = PutIds(lane.in, ids.subspan(begin, count));
        std::int64_t* const found = lane.out.Take<std::int64_t>(count).device;
        std::uint8_t* const how = lane.out.Take<std::uint8_t>(count).device;
        EMBLA_RETURN_IF_ERROR(lane.Send());
        EMBLA_RETURN_IF_ERROR(
            lane.stream->Launch("FindIds", kernels_.ids.find, groups(), piece, count, found, how));
        return lane.Fetch();
      },
      [&](Lane& lane, std::size_t begin, std::size_t end) {
        const std::size_t slot_bytes = (end - begin) * sizeof(ZchSlot);
        std::memcpy(slots.data() + begin, lane.out.host(), slot_bytes);
        std::memcpy(outcomes.data() + begin, lane.out.host() + LaneCargo::Padded(slot_bytes),
                    end - begin);
      });
}

absl::Status DeviceIdMap::Apply(const Batch& batch, Answer& answer, ParallelFor) {
  EMBLA_CHECK(batch.counts.empty() || batch.counts.size() == batch.ids.size());
  EMBLA_CHECK(batch.ttls.empty() || batch.ttls.size() == batch.ids.size());
  answer.slots.resize(batch.ids.size());
  answer.outcomes.resize(batch.ids.size());
  answer.evictions.clear();
  EMBLA_RETURN_IF_ERROR(ReserveApply(batch.ids.size()));
  return StopOnError(ApplyOnDevice(batch, answer));
}

// Slots, outcomes and counts on the first trip; on a second one the evictions, if there were any.
absl::Status DeviceIdMap::ApplyOnDevice(const Batch& batch, Answer& answer) {
  EMBLA_RETURN_IF_ERROR(SendBuckets());
  const std::size_t count = batch.ids.size();
  if (count == 0) return absl::OkStatus();
  LaneCargo::Part<std::int64_t> slots;
  LaneCargo::Part<std::uint8_t> outcomes;
  LaneCargo::Part<std::uint32_t> evicted;
  LaneCargo::Part<std::uint64_t> collisions;
  EMBLA_RETURN_IF_ERROR(RunOnce([&](Lane& lane) -> absl::Status {
    EMBLA_ASSIGN_OR_RETURN(const std::size_t bytes, ApplyBytes(count));
    const Scratch scratch = ScratchOf(count, bytes);
    EMBLA_RETURN_IF_ERROR(lane.in.Reset(device(), BatchInBytes(count)));
    EMBLA_RETURN_IF_ERROR(lane.out.Reset(device(), BatchOutBytes(count)));
    cuda::DeviceBatch there;
    there.ids = PutIds(lane.in, batch.ids);
    if (!batch.counts.empty()) there.counts = lane.in.Put(batch.counts);
    if (!batch.ttls.empty()) there.ttls = lane.in.Put(batch.ttls);
    there.count = count;
    there.clock = batch.clock;
    there.admits_all = batch.admits_all;
    slots = lane.out.Take<std::int64_t>(count);
    outcomes = lane.out.Take<std::uint8_t>(count);
    evicted = lane.out.Take<std::uint32_t>(1);
    EMBLA_RETURN_IF_ERROR(lane.Send());
    EMBLA_RETURN_IF_ERROR(lane.stream->Launch(
        "ApplyIds", kernels_.ids.apply, options_, groups(), there,
        cuda::DeviceAnswer{slots.device, outcomes.device, scratch.evictions, evicted.device,
                           memory_.collisions_avoided.As<std::uint64_t>()},
        scratch.workspace));
    EMBLA_RETURN_IF_ERROR(lane.Fetch());
    collisions = lane.out.Take<std::uint64_t>(1);
    return lane.stream->CopyToHost(collisions.host, memory_.collisions_avoided.data(),
                                   sizeof(std::uint64_t));
  }));
  // The lane is at rest, and its memory as the trip has left it.
  std::memcpy(answer.slots.data(), slots.host, count * sizeof(ZchSlot));
  std::memcpy(answer.outcomes.data(), outcomes.host, count);
  statistics_.collisions_avoided = *collisions.host;
  const std::uint32_t evictions = *evicted.host;
  CountApplied(answer);
  return TakeEvictions(evictions, batch.clock.step, answer.evictions);
}

void DeviceIdMap::CountApplied(const Answer& answer) {
  for (std::size_t i = 0; i < answer.outcomes.size(); ++i) {
    const Outcome outcome = answer.outcomes[i];
    statistics_.hits += outcome == Outcome::kHit;
    statistics_.not_admitted += outcome == Outcome::kNotAdmitted;
    statistics_.full += outcome == Outcome::kFull;
    statistics_.not_here += outcome == Outcome::kNotHere;
    if (outcome != Outcome::kInserted) continue;
    ++statistics_.inserts;
    ++StateOf(answer.slots[i]).residents;
  }
}

absl::Status DeviceIdMap::TakeEvictions(std::size_t count, std::uint64_t step,
                                        std::vector<Eviction>& evictions) {
  if (count == 0) return absl::OkStatus();
  constexpr std::size_t kBytes = sizeof(cuda::DeviceEviction);
  return lanes_.Run(
      count, kBytes,
      [&](Lane& lane, std::size_t begin, std::size_t end) -> absl::Status {
        const std::size_t bytes = (end - begin) * kBytes;
        EMBLA_RETURN_IF_ERROR(lane.out.Reset(device(), bytes));
        std::byte* const host = lane.out.Take<std::byte>(bytes).host;
        return lane.stream->CopyToHost(host, lanes_.scratch() + begin * kBytes, bytes);
      },
      [&](Lane& lane, std::size_t begin, std::size_t end) {
        const auto* const taken = reinterpret_cast<const cuda::DeviceEviction*>(lane.out.host());
        for (std::size_t i = 0; i < end - begin; ++i) {
          const Eviction eviction{RowId{taken[i].id}, ZchSlot{taken[i].slot},
                                  static_cast<EvictionReason>(taken[i].reason), taken[i].last_step,
                                  step};
          Record(eviction, StateOf(eviction.slot), statistics_);
          evictions.push_back(eviction);
        }
      });
}

absl::Status DeviceIdMap::EvictExpired(const Clock& clock, std::vector<Eviction>& evictions,
                                       BucketRange range) {
  if (options_.policy != Policy::kTtl) return device().health();
  return Sweep({EvictionReason::kExpired, range.begin, range.end, clock.now, 0}, clock.step,
               evictions);
}

absl::Status DeviceIdMap::EvictIdle(std::uint64_t before_step, std::uint64_t step,
                                    std::vector<Eviction>& evictions, BucketRange range) {
  return Sweep({EvictionReason::kIdle, range.begin, range.end, 0, before_step}, step, evictions);
}

absl::Status DeviceIdMap::Sweep(const cuda::DeviceSweep& sweep, std::uint64_t step,
                                std::vector<Eviction>& evictions) {
  const BucketRange range = Clamp({sweep.bucket_begin, sweep.bucket_end});
  const std::uint32_t at_once = BucketsSweptAtOnce(buckets_here_);
  EMBLA_RETURN_IF_ERROR(ReserveSweep());
  absl::Status status = SendBuckets();
  for (std::uint32_t begin = range.begin; status.ok() && begin < range.end;) {
    cuda::DeviceSweep part = sweep;
    part.bucket_begin = begin;
    part.bucket_end = begin + std::min(at_once, range.end - begin);
    status = SweepPart(part, step, evictions);
    begin = part.bucket_end;
  }
  return StopOnError(status);
}

absl::Status DeviceIdMap::SweepPart(const cuda::DeviceSweep& sweep, std::uint64_t step,
                                    std::vector<Eviction>& evictions) {
  const std::uint32_t buckets = sweep.bucket_end - sweep.bucket_begin;
  LaneCargo::Part<std::uint32_t> swept;
  EMBLA_RETURN_IF_ERROR(RunOnce([&](Lane& lane) -> absl::Status {
    EMBLA_ASSIGN_OR_RETURN(const std::size_t bytes, SweepBytes(buckets));
    const Scratch scratch = ScratchOf(std::size_t{buckets} * slots_per_bucket_, bytes);
    EMBLA_RETURN_IF_ERROR(lane.out.Reset(device(), sizeof(std::uint32_t)));
    swept = lane.out.Take<std::uint32_t>(1);
    EMBLA_RETURN_IF_ERROR(lane.stream->Launch(
        "SweepIds", kernels_.ids.sweep, options_, groups(), sweep,
        cuda::DeviceSweptIds{scratch.evictions, swept.device}, scratch.workspace));
    return lane.Fetch();
  }));
  return TakeEvictions(*swept.host, step, evictions);
}

absl::Status DeviceIdMap::HalveCounts() {
  EMBLA_RETURN_IF_ERROR(SendBuckets());
  return StopOnError(RunOnce([&](Lane& lane) {
    return lane.stream->Launch("HalveIdCounts", kernels_.ids.halve_counts, options_, groups());
  }));
}

}  // namespace embla::zch
