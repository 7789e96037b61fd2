// One device's share of a lookup: the rows of one of its slices.
//
// Both forms first select the ids that the slice has, and tell how many they found; the node adds
// up what all devices found to see whether an id was missed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/rows/request.h"
#include "kernels/lookup.h"
#include "server/table/table_shard.h"

namespace embla {

// The ids that a ZCH table's slice has, on their way to slots. Empty for other tables.
struct HashedIds {
  std::vector<RowId> ids;
  ZchPlaces places;
  absl::Status status;  // Result of finding them.

  // Makes room for ids, or forgets what was there.
  void Reset(const OwnSlice& own, std::size_t ids_max);
  // Replaces `slots` by those of the first `found` ids.
  void FindIn(const OwnSlice& own, std::size_t found, std::vector<std::uint32_t>& slots);
};

// The ids of an unpooled part that one slice has.
class RowSelection {
 public:
  // `own` lives until Gather.
  void Select(std::span<const RowId> ids, const OwnSlice& own);
  std::size_t found() const { return slots_.size(); }

  // Copies columns `columns` of the selected rows to their positions: the row of ids[i] to row i
  // of `out`. Other rows of `out` are left alone.
  absl::Status Gather(ColumnRange columns, const kernels::Output& out);

 private:
  template <typename Has, typename Take>
  void SelectIf(std::span<const RowId> ids, const Has& has, const Take& take);
  absl::Status GatherSlots(ColumnRange columns, const kernels::Output& out);
  absl::Status GatherInitial(ColumnRange columns, const kernels::Output& out);

  const RowStore* store_ = nullptr;
  HashedIds hashed_;  // ZCH tables only.
  bool all_ = false;  // Every id: positions_ is not needed.
  std::vector<std::uint32_t> slots_;
  std::vector<std::uint32_t> positions_;  // Positions of slots_, ascending.
  std::vector<std::byte> rows_;           // Gathered rows on their way to their positions.
};

// The ids of a pooled part that one slice has, bag by bag.
class BagSelection {
 public:
  // `own` lives until the last PoolNext or PoolNextToWire.
  void Select(const LookupPart& part, const OwnSlice& own);
  std::size_t found() const { return slots_.size(); }
  // Piece size of the slice's store; 0 when it has none.
  std::size_t piece_bytes() const { return store_ == nullptr ? 0 : store_->piece_bytes(); }

  // Pools the next `count` bags, from the first one on.
  absl::Status PoolNext(std::size_t count, ColumnRange columns, const kernels::Output& out);
  // Whether the slice's store pools the next `count` bags to any format (RowStore::PoolToWire).
  bool PoolsToWire(std::size_t count) const;
  // The same as PoolNext, divided and converted. Requires: PoolsToWire(count).
  absl::Status PoolNextToWire(std::span<const std::uint32_t> divisors, std::size_t count,
                              ColumnRange columns, const kernels::Output& out);

 private:
  kernels::Bags TakeBags(std::size_t count);
  template <typename Has, typename Take>
  void SelectIf(const LookupPart& part, const Has& has, const Take& take);
  // Pools bags in which some ids read initial rows: all rows are laid side by side first.
  absl::Status PoolStaged(const kernels::Bags& bags, ColumnRange columns,
                          const kernels::Output& out);
  // Rows [first, first + count) of the selected slots, fp32, to staged_.
  absl::Status Stage(std::size_t first, std::size_t count, ColumnRange columns);

  const RowStore* store_ = nullptr;
  HashedIds hashed_;                      // ZCH tables only, like
  std::vector<float> staged_;             // these.
  std::vector<std::uint32_t> positions_;  // 0, 1, 2, ...
  std::vector<std::uint32_t> slots_;
  std::vector<std::uint32_t> lengths_;
  std::vector<float> weights_;  // Empty, or one per slot.
  std::size_t next_bag_ = 0;
  std::size_t next_slot_ = 0;
};

// Memory of a thread, which one lookup after the other uses.
struct LookupScratch {
  static LookupScratch& OfThread();

  RowSelection rows;
  std::vector<BagSelection> bags;
  std::vector<float> pooled;
  std::vector<float> pooled_more;
};

// Adds up what several slices of a device have of the next `count` bags. `out` is fp32; `scratch`
// is memory to reuse. Requires: `slices` is not empty.
absl::Status PoolNext(std::span<BagSelection> slices, std::size_t count, ColumnRange columns,
                      const kernels::Output& out, std::vector<float>& scratch);

}  // namespace embla
