// The ids of one slice of a ZCH table (docs/zch.md): whose row is which, and what ids without a row
// read. Lookups only find; updates insert, touch and evict.
//
// Rows begin with the initial values of their id, not of their place, so the same training gives
// the same rows wherever the buckets lie.
//
// Thread safety: none. It belongs to the slice's device, like the rows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/plan/id_rows.h"
#include "core/plan/plan.h"
#include "kernels/combine.h"
#include "server/storage/row_store.h"
#include "server/storage/thread_pool.h"
#include "server/table/eviction_log.h"
#include "server/table/id_numbering.h"
#include "server/table/row_intervals.h"
#include "server/table/zch_metrics.h"
#include "server/zch/id_map.h"

namespace embla {

// Places from which ids are read.
struct ZchPlaces {
  // By id, in the slice; kernels::kNoSlot reads as zeros.
  std::vector<std::uint32_t> slots;
  // Ids that read an initial row instead: their positions, ascending, and whose row it is.
  std::vector<std::uint32_t> initial_at;
  std::vector<RowId> initial_of;
};

// Takes the rows of a whole generation of ids away. Its effect on a bucket is a function of these
// numbers and of the bucket.
struct ZchSweep {
  enum class Rule : std::uint8_t { kExpired = 1, kIdle = 2 };

  Rule rule = Rule::kExpired;     // kExpired: whose TTL is over at `step`.
  std::uint64_t step = 0;         // Step of the evictions.
  std::uint64_t before_step = 0;  // kIdle: ids that were last touched before it.
  bool operator==(const ZchSweep&) const = default;
};

// Options for the map of a slice's ids. Requires: a ZCH table.
zch::SlotMapOptions IdMapOptionsOf(const TableSpec& spec, const Slice& slice);
zch::BucketRange BucketsOf(const TableSpec& spec, const Slice& slice);

// Errors beside those that a method states: those of the map's memory (server/zch/id_map.h).
class ZchIds {
 public:
  // `map` has IdMapOptionsOf, and no bucket yet. `metrics` may be null.
  ZchIds(const TableSpec& spec, const Slice& slice, std::unique_ptr<zch::IdMap> map,
         Metrics* metrics);
  ~ZchIds();

  // The buckets whose rows are [row_begin, row_end), empty.
  void AddBuckets(std::int64_t row_begin, std::int64_t row_end);

  // From now on evicted rows go to `log`, too. Null: they do not.
  void StreamTo(std::shared_ptr<EvictionLog> log) { evictions_ = std::move(log); }

  // Maps an id to the row that stands for it where the table is cut.
  const IdRows& id_rows() const { return id_rows_; }

  // OutOfRange: the table's unseen rule is error, and one of `ids` has no row.
  // Requires: the slice holds the buckets of all `ids`.
  absl::Status Find(std::span<const RowId> ids, ZchPlaces& places);

  // Finds and touches the ids of `grouping`, gives rows to new ones as policy and
  // admission say, and makes rows in `store` that changed hands begin anew. Buckets with rows in
  // `skipped` are left alone. Afterwards the segments of `grouping` are rows of the table,
  // ascending; those of ids that get no row are left out.
  // Requires: the slice holds the buckets of the other ids.
  struct Touch {
    std::uint64_t step = 0;
    // By position in the batch, 0 the table's; may be empty.
    std::span<const std::uint32_t> ttls = {};
    bool admits_all = false;  // Overrides the table's admission.
  };
  // Makes room for a Settle of so many ids, or a Sweep (zch::IdMap::ReserveApply).
  absl::Status ReserveSettle(std::size_t ids) { return map_->ReserveApply(ids); }
  absl::Status ReserveSweep() { return map_->ReserveSweep(); }
  absl::Status Settle(const Touch& touch, const RowIntervals& skipped, RowStore& store,
                      ThreadPool& pool, kernels::Grouping& grouping);
  // The same for a store that sums, with the ids in any order: slots[p] becomes the slot, in the
  // slice, of what is at position p; kernels::kNoSlot: its id gets no row. Requires: slots has a
  // place for each position.
  absl::Status SettleInPlace(const Touch& touch, const RowIntervals& skipped, RowStore& store,
                             ThreadPool& pool, const IdNumbering& numbering,
                             std::span<std::uint32_t> slots);

  // Sweeps the buckets of `rows` that are here; how many ids lost their rows, which are in `store`.
  absl::StatusOr<std::size_t> Sweep(const ZchSweep& sweep, const RowIntervals& rows,
                                    RowStore& store);
  // Surveys the buckets of `rows` that are here; ages are up to `step`.
  absl::StatusOr<zch::Survey> Survey(std::uint64_t step, const RowIntervals& rows) const;

  // The id that each row of [begin, end) belongs to; none: to no id, or the bucket is not here.
  absl::StatusOr<std::vector<std::optional<RowId>>> IdsAt(std::int64_t begin,
                                                          std::int64_t end) const;
  // Returns the slots of the ids' own rows in the slice; kernels::kNoSlot: they have none here.
  absl::StatusOr<std::vector<std::uint32_t>> SlotsOf(std::span<const RowId> ids) const;

  absl::StatusOr<zch::Explanation> Explain(RowId id) const { return map_->Explain(id); }
  // Beside what the slice's rows take.
  std::size_t memory_bytes() const { return map_->memory_bytes(); }

  bool HasBucket(std::uint32_t bucket) const { return map_->Holds(bucket); }
  // A bucket with all that is known of its ids, for a move (docs/zch.md): errors as SlotMap's.
  absl::StatusOr<Buffer> ExportBucket(std::uint32_t bucket) const;
  // `block` becomes the bucket, whether there was one or not. InvalidArgument (another bucket, or
  // a table of other options) and DataLoss change nothing; after others the bucket is not here.
  absl::Status ReplaceBucket(std::uint32_t bucket, std::span<const std::byte> block);
  // Empty, unless it is here already.
  void AddBucket(std::uint32_t bucket);
  // If it is here.
  void RemoveBucket(std::uint32_t bucket);
  std::uint32_t BucketAt(std::int64_t row) const {
    return static_cast<std::uint32_t>(row / id_rows_.rows_per_bucket());
  }
  // Rows of the table that hold something: those of ids, and those that ids share. Ascending.
  absl::StatusOr<std::vector<RowId>> RowsInUse(std::uint32_t bucket) const;

 private:
  std::uint32_t SlotInSlice(zch::ZchSlot slot) const {
    return static_cast<std::uint32_t>(static_cast<std::int64_t>(slot) - row_begin_);
  }
  absl::Status PlaceUnseen(RowId id, std::size_t position, ZchPlaces& places) const;
  // Sets ids_, numbers_ and answer_. Requires: `ids` differ; longest_ttls_ is theirs.
  absl::Status Apply(const Touch& touch, const RowIntervals& skipped, RowStore& store,
                     ThreadPool& pool, std::span<const std::int64_t> ids);
  // Notes that an id has a TTL among others.
  void AddTtl(std::size_t number, std::uint32_t ttl);
  // Hands the rows to the readers of evictions, before the slots get new ids.
  absl::Status Stream(std::span<const zch::Eviction> evictions, const RowStore& store) const;
  absl::Status ResetInserted(RowStore& store) const;
  void Regroup(kernels::Grouping& grouping) const;
  std::uint64_t ResidentCount() const;
  void CountChanges();

  const TableId table_id_;
  const std::string table_;
  const IdRows id_rows_;
  const zch::Unseen unseen_;
  const std::int64_t row_begin_;  // First row of the slice.
  const std::unique_ptr<zch::IdMap> map_;
  const ZchMetrics metrics_;
  zch::Statistics counted_;
  std::shared_ptr<EvictionLog> evictions_;  // Shared by the table's slices; may be null.

  // Reused from batch to batch.
  std::vector<std::uint32_t> longest_ttls_;  // By different id of an update; empty: the table's.
  std::vector<RowId> ids_;                   // The ones to find, and
  std::vector<std::uint32_t> numbers_;       // where they are among all of them.
  std::vector<std::uint32_t> ttls_;          // By position in ids_.
  zch::Answer answer_;                       // By position in ids_.
  std::vector<std::uint32_t> slot_of_;       // By different id of an update.
  std::vector<zch::ZchSlot> found_;
  std::vector<zch::Outcome> outcomes_;
};

}  // namespace embla
