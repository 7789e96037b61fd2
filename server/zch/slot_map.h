// Zero-collision hashing: gives each id a slot of its own, decides who gets one and who loses it.
//
// The id fixes the bucket and the group of 64 slots (id_place.h); within the group any lane will
// do. A batch runs in two phases. First all ids are found and touched, which reads the groups'
// tags and ids and changes nothing but commuting touches, on any number of threads. Then the
// misses, sorted by (group, id), are inserted, each bucket by one thread: the lowest empty lane,
// else the policy's victim. So the content is a function of the sequence of batches alone: not of
// threads, of the order of ids in a batch, of other buckets, or of where a bucket lives.
//
// Cost: find about 2.2 cache misses per id, overlapped; 21 bytes per slot. Covered by
// slot_map_model_test (against an unordered_map), slot_map_test (semantics), bucket_block_test,
// bench/zch_bench. Formats and semantics for users: docs/zch.md.
//
// Thread safety: const methods may run at the same time; any other method runs alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/base/ids.h"
#include "server/zch/batch.h"
#include "server/zch/bucket_state.h"
#include "server/zch/group_table.h"
#include "server/zch/inspection.h"
#include "server/zch/probe.h"
#include "server/zch/slot_map_options.h"
#include "server/zch/statistics.h"

namespace embla::zch {

class SlotMap {
 public:
  // Holds no bucket. InvalidArgument: options. ResourceExhausted: no address space.
  static absl::StatusOr<std::unique_ptr<SlotMap>> Create(const SlotMapOptions& options);

  // Empty buckets. InvalidArgument: no such bucket; AlreadyExists.
  absl::Status AddBucket(std::uint32_t bucket);
  void AddAllBuckets();
  // Forgets the bucket and gives its memory back. InvalidArgument, NotFound.
  absl::Status RemoveBucket(std::uint32_t bucket);
  bool Holds(std::uint32_t bucket) const {
    return bucket < options_.buckets && groups_.Holds(bucket);
  }

  // Read-only: touches nothing and counts nothing towards admission. Any part of a batch may be
  // found by any thread. Requires: all spans of one size.
  void Find(std::span<const RowId> ids, std::span<ZchSlot> slots,
            std::span<Outcome> outcomes) const;

  // Finds, touches, admits, inserts, evicts. Steps should not fall: ids touched at an equal or
  // later step are never evicted. Overwrites `answer`, whose memory is reused.
  void Apply(const Batch& batch, Answer& answer, ParallelFor loop = RunInline);

  // Each appends what it evicted to `evictions`; remaining ids keep their slots.
  // Ids without a slot are skipped.
  void Remove(std::span<const RowId> ids, std::uint64_t step, std::vector<Eviction>& evictions);
  // A whole TTL generation: every id whose expiry is <= clock.now. Nothing unless kTtl.
  void EvictExpired(const Clock& clock, std::vector<Eviction>& evictions, BucketRange range = {});
  // Every id last touched before `before_step`, whatever the policy.
  void EvictIdle(std::uint64_t before_step, std::uint64_t step, std::vector<Eviction>& evictions,
                 BucketRange range = {});
  // Ages counts (kLfu, kDistanceLfu): each becomes half of itself, rounded down.
  void HalveCounts();

  // The bucket as one flat block (bucket_block.h), enough to continue elsewhere as if it had never
  // moved. NotFound.
  absl::StatusOr<Buffer> ExportBucket(std::uint32_t bucket) const;
  // Adds the block's bucket. Errors change nothing: InvalidArgument (no block, or of a table made
  // with other options), DataLoss (damaged), AlreadyExists.
  absl::Status ImportBucket(std::span<const std::byte> block);

  Explanation Explain(RowId id) const;
  // Returns the id that has the slot; none: the slot is free, or its bucket is not here. Requires:
  // a slot of the table.
  std::optional<RowId> IdAt(ZchSlot slot) const;
  Statistics statistics() const;
  // Reads every group.
  Survey TakeSurvey(std::uint64_t step, BucketRange range = {}) const;
  std::uint64_t residents(std::uint32_t bucket) const;
  const SlotMapOptions& options() const { return options_; }

 private:
  // An id that the first phase did not find.
  struct Miss {
    std::uint64_t group_number;
    std::int64_t id;
    std::uint32_t position;
    auto operator<=>(const Miss&) const = default;
  };
  class Insertion;

  SlotMap(const SlotMapOptions& options, GroupTable groups);

  absl::Status CheckBucket(std::uint32_t bucket) const;
  std::uint32_t TouchWord(const Batch& batch, std::size_t position) const;
  void FindAndTouch(const Batch& batch, Answer& answer, ParallelFor loop);
  template <Touching kTouching>
  Statistics FindAndTouchChunk(const Batch& batch, std::size_t chunk, Answer& answer);
  void SortMisses();
  void GatherMisses();
  // Empties the lane, and puts that on record.
  struct Expulsion {
    std::uint64_t group_number;
    int lane;
    EvictionReason reason;
    std::uint64_t step;
  };
  Eviction Evict(const Expulsion& expulsion, Statistics& statistics);
  // Evicts from the bucket where `choose(group, lane)` says so, in the order of slots.
  template <typename Choose>
  void Sweep(std::uint32_t bucket, EvictionReason reason, std::uint64_t step, const Choose& choose,
             std::vector<Eviction>& evictions);
  template <typename Visit>
  void ForEachBucket(BucketRange range, const Visit& visit) const;

  const SlotMapOptions options_;
  GroupTable groups_;
  std::vector<std::unique_ptr<BucketState>> buckets_;  // By bucket; null: not here.
  Statistics statistics_;
  mutable std::atomic<std::uint64_t> read_hits_{0};
  mutable std::atomic<std::uint64_t> read_missing_{0};
  mutable std::atomic<std::uint64_t> not_here_{0};

  // Reused from batch to batch.
  std::vector<std::vector<Miss>> misses_of_chunks_;
  std::vector<Miss> misses_;
  std::vector<std::uint32_t> bins_;  // Begin of each bin of misses_.
  std::vector<std::size_t> runs_;    // Begin of each bucket's misses, and the end.
  std::vector<Eviction> evicted_;    // By miss; slot kNoSlot: none.
};

}  // namespace embla::zch
