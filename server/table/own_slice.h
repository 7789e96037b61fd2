// A slice on a device of this node, with its memory, and which of its rows are here: units of it
// come and go by live moves.
//
// The layouts of a table (server/table/table_shard.h) share it. Everything but the rectangle and
// `released` belongs to the device's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/plan/plan.h"
#include "server/storage/row_store.h"
#include "server/table/row_intervals.h"
#include "server/table/zch_ids.h"

namespace embla {

// Memory of a slice's rows, and the map of its ids.
struct SliceMemory {
  std::unique_ptr<RowStore> rows;
  std::unique_ptr<zch::IdMap> ids;  // ZCH tables only (IdMapOptionsOf); else null.
};

struct OwnSlice {
  OwnSlice(const TableSpec& spec, const Slice& rectangle, SliceMemory memory, Metrics* metrics)
      : slice(rectangle), store(std::move(memory.rows)) {
    if (!spec.zch.has_value()) return;
    ids = std::make_unique<ZchIds>(spec, rectangle, std::move(memory.ids), metrics);
  }

  const Slice slice;
  std::unique_ptr<RowStore> store;  // Null when no row is present or staged any more.
  std::unique_ptr<ZchIds> ids;      // ZCH tables only: maps rows to their ids.
  RowIntervals present;             // Rows that requests find.
  RowIntervals staged;              // Has memory, and rows are being copied in.
  // Set once, when the store is deleted; the next layout leaves the slice out. Relaxed: to see it
  // late keeps an empty slice for longer, nothing else.
  std::atomic<bool> released = false;

  ColumnRange columns() const { return {slice.column_begin, slice.column_end}; }
  RowInterval rows() const { return {slice.row_begin, slice.row_end}; }
  bool Covers(ColumnRange columns, RowInterval rows) const {
    return columns == this->columns() && slice.row_begin <= rows.begin && rows.end <= slice.row_end;
  }
  // Whether every row of the rectangle is present.
  bool whole() const {
    const auto intervals = present.intervals();
    return intervals.size() == 1 && intervals.front() == rows();
  }
  // Gives the memory back if nothing needs it.
  void ReleaseIfEmpty() {
    if (!present.empty() || !staged.empty()) return;
    store.reset();
    ids.reset();
    released.store(true, std::memory_order_relaxed);
  }
};

// Calls `use` with a predicate: whether the row of an id, any number, is present; of a ZCH table,
// whether its bucket is. Where all rows of the slice are, it is one comparison.
template <typename Use>
void WithPresence(const OwnSlice& own, const Use& use) {
  const auto begin = static_cast<std::uint64_t>(own.slice.row_begin);
  const auto rows = static_cast<std::uint64_t>(own.slice.rows());
  if (own.ids != nullptr) {
    const IdRows id_rows = own.ids->id_rows();
    use([&own, id_rows](std::int64_t id) {
      return own.present.Contains(id_rows.RowOf(RowId{id}));
    });
  } else if (own.whole()) {
    use([begin, rows](std::int64_t row) { return static_cast<std::uint64_t>(row) - begin < rows; });
  } else {
    use([&own](std::int64_t row) { return own.present.Contains(row); });
  }
}

}  // namespace embla
