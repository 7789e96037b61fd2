// The map of a ZCH table's ids in the memory of a GPU: the groups of one slice's buckets are there,
// with the ids that wait for a slot, and the kernels of server/zch/cuda find, touch, insert, evict
// and sweep. The host keeps what those do not need: how many ids a bucket has, and the history of
// its evictions.
//
// Batches travel on the device's lanes. A batch of updates is never cut, since who gets a slot is
// decided among all of its ids. Single ids (Remove, Explain) cost a trip each.
//
// Every verb returns when its results are there. A device that has stopped answers Unavailable; a
// verb that changes slots and fails stops its device, unless it found no memory: all of that is
// reserved before anything is queued.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/gpu/device.h"
#include "server/storage/device_lanes.h"
#include "server/storage/memory_budget.h"
#include "server/zch/bucket_state.h"
#include "server/zch/candidate_block.h"
#include "server/zch/cuda/device_groups.h"
#include "server/zch/cuda/sweep.h"
#include "server/zch/id_map.h"
#include "server/zch/slot_group.h"

namespace embla::zch {

class DeviceIdMap final : public IdMap {
 public:
  // Whether a GPU can hold the map of such a table: it cannot with 2^32 - 1 groups and more.
  static bool CanHold(const SlotMapOptions& options);

  // A map that will hold buckets of `buckets` only, and holds none yet. `budget` and `lanes` are
  // not owned and outlive the map. May be called on any thread: it does not use the lanes.
  //
  // InvalidArgument: options, or no such buckets. ResourceExhausted: over the budget, or no memory
  // left on the GPU. Errors of gpu::Device. Requires: CanHold(options), if they are valid.
  static absl::StatusOr<std::unique_ptr<IdMap>> Create(const SlotMapOptions& options,
                                                       BucketRange buckets, MemoryBudget& budget,
                                                       DeviceLanes& lanes);

  absl::Status AddBucket(std::uint32_t bucket) override;
  absl::Status RemoveBucket(std::uint32_t bucket) override;
  bool Holds(std::uint32_t bucket) const override {
    return bucket < options_.buckets && buckets_[bucket] != nullptr;
  }

  absl::Status Find(std::span<const RowId> ids, std::span<ZchSlot> slots,
                    std::span<Outcome> outcomes) const override;
  absl::Status Locate(std::span<const RowId> ids, std::span<ZchSlot> slots) const override;
  absl::Status ReserveApply(std::size_t ids) override;
  absl::Status ReserveSweep() override;
  absl::Status Apply(const Batch& batch, Answer& answer, ParallelFor loop) override;

  absl::Status Remove(std::span<const RowId> ids, std::uint64_t step,
                      std::vector<Eviction>& evictions) override;
  absl::Status EvictExpired(const Clock& clock, std::vector<Eviction>& evictions,
                            BucketRange range) override;
  absl::Status EvictIdle(std::uint64_t before_step, std::uint64_t step,
                         std::vector<Eviction>& evictions, BucketRange range) override;
  absl::Status HalveCounts() override;

  absl::StatusOr<Buffer> ExportBucket(std::uint32_t bucket) const override;
  absl::Status ImportBucket(std::span<const std::byte> block) override;

  absl::StatusOr<Explanation> Explain(RowId id) const override;
  absl::Status IdsAt(ZchSlot begin, std::span<std::optional<RowId>> ids) const override;
  absl::StatusOr<Survey> TakeSurvey(std::uint64_t step, BucketRange range) const override;

  Statistics statistics() const override { return statistics_; }
  std::uint64_t residents(std::uint32_t bucket) const override {
    return Holds(bucket) ? buckets_[bucket]->residents : 0;
  }
  const SlotMapOptions& options() const override { return options_; }
  std::size_t memory_bytes() const override { return memory_.grant.bytes(); }

 private:
  struct Arenas {
    MemoryGrant grant;
    gpu::DeviceMemory groups;              // Groups of buckets_here_, whether held or not,
    gpu::DeviceMemory candidates;          // and who waits for a slot there.
    gpu::DeviceMemory held;                // By bucket of the table.
    gpu::DeviceMemory collisions_avoided;  // Since the map was made.
  };
  // How the lanes' scratch memory is shared out: evictions first.
  struct Scratch {
    cuda::DeviceEviction* evictions = nullptr;
    kernels::cuda::Workspace workspace;
  };

  DeviceIdMap(const SlotMapOptions& options, BucketRange buckets, Arenas memory,
              DeviceLanes& lanes);

  gpu::Device& device() const { return lanes_.device(); }
  cuda::DeviceGroups groups() const;
  std::byte* GroupOnDevice(std::uint64_t group_number) const;
  std::byte* CandidatesOnDevice(std::uint32_t bucket) const;
  absl::Status CheckBucket(std::uint32_t bucket) const;
  absl::Status CheckHeld(std::uint32_t bucket) const;
  // The buckets of `range` that may be here.
  BucketRange Clamp(BucketRange range) const;
  BucketState& StateOf(ZchSlot slot) { return *buckets_[ToInt(slot) / slots_per_bucket_]; }
  absl::Status StopOnError(const absl::Status& status) const;

  // One trip of one piece.
  absl::Status RunOnce(absl::FunctionRef<absl::Status(Lane&)> queue) const;
  Scratch ScratchOf(std::size_t evictions, std::size_t workspace_bytes) const;
  static std::size_t ScratchBytes(std::size_t evictions, std::size_t workspace_bytes);
  std::uint32_t BucketsSweptAtOnce(BucketRange range) const;
  absl::StatusOr<std::size_t> ApplyBytes(std::size_t ids) const;
  absl::StatusOr<std::size_t> SweepBytes(std::uint32_t buckets) const;
  // Tells the device which buckets are here, and empties those that came anew.
  absl::Status SendBuckets() const;
  absl::Status FindUncounted(std::span<const RowId> ids, std::span<ZchSlot> slots,
                             std::span<Outcome> outcomes) const;
  // Copies of memory of the device.
  absl::Status Read(const std::byte* from, std::span<std::byte> to) const;
  absl::Status Write(std::byte* to, std::span<const std::byte> from) const;
  absl::Status ReadGroups(std::uint64_t group_number, std::span<SlotGroup> groups) const;
  // The record of a bucket with those who wait, whom the device has. Requires: it is here.
  absl::StatusOr<BucketState> ReadState(std::uint32_t bucket) const;

  absl::Status ApplyOnDevice(const Batch& batch, Answer& answer);
  void CountApplied(const Answer& answer);
  absl::Status RemoveOne(RowId id, std::uint64_t step, std::vector<Eviction>& evictions);
  absl::Status Sweep(const cuda::DeviceSweep& sweep, std::uint64_t step,
                     std::vector<Eviction>& evictions);
  // A part of a sweep that scratch memory is enough for.
  absl::Status SweepPart(const cuda::DeviceSweep& sweep, std::uint64_t step,
                         std::vector<Eviction>& evictions);
  // The first `count` of the scratch memory's, which are put on record.
  absl::Status TakeEvictions(std::size_t count, std::uint64_t step,
                             std::vector<Eviction>& evictions);

  const SlotMapOptions options_;
  const std::uint32_t groups_per_bucket_;
  const std::uint32_t slots_per_bucket_;
  const CandidateLayout candidates_;
  const BucketRange buckets_here_;
  DeviceLanes& lanes_;               // Not owned; outlives this object, like
  const gpu::KernelTable& kernels_;  // this.
  const Arenas memory_;

  // By bucket, without candidates; null: not here.
  std::vector<std::unique_ptr<BucketState>> buckets_;
  // True if SendBuckets must run before the next batch.
  mutable bool buckets_changed_ = true;
  mutable std::vector<std::uint8_t> has_old_ids_;  // By bucket: its groups were used before.
  mutable Statistics statistics_;
};

}  // namespace embla::zch
