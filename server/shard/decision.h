// The decisions of a node about its tables. Nothing can refuse a decision any more: the journal
// keeps it as one record, and the process after this one applies it again, in the same order.
// docs/journal_format.md has the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "core/base/buffer.h"
#include "core/base/ids.h"
#include "core/plan/plan.h"
#include "core/rows/request.h"
#include "server/migration/session_set.h"
#include "server/migration/unit_windows.h"
#include "server/shard/averaged_rows.h"
#include "server/table/update_units.h"
#include "server/table/zch_ids.h"

namespace embla {

// The decision on a table's part of an update.
struct DecidedTable {
  TableId table{};
  std::uint32_t replica_group = 0;
  bool applies_rest = true;  // The rows of units that are not named.
  std::vector<DecidedUnit> units;
  // At a start, rows that a snapshot is still to bring: they are left alone, whatever was decided.
  // Not in the record.
  RowIntervals awaited = {};
  bool operator==(const DecidedTable&) const = default;
};

// An update, or a whole synchronous step.
struct DecidedUpdate {
  UpdateBatch batch;                 // Parts of tables that apply something.
  std::vector<DecidedTable> tables;  // One for each table of `batch`.
  absl::Time time;                   // Sessions count as used at this time.
};

// An update of a data_parallel table, by its primary on another node.
struct CopiedUpdate {
  TableId table{};
  std::uint64_t reign = 0;  // The primary's.
  std::uint64_t order = 0;  // The update's place in the primary's order.
  UpdateBatch batch;        // Parts of `table` only.
};

// Rows of a copy of a whole data_parallel table, as its primary had them after update `order`; the
// updates between two such records lie between them.
struct CopiedRows {
  TableId table{};
  std::uint64_t reign = 0;
  std::uint64_t order = 0;
  SharedBuffer row_block = {};  // core/rows/row_block.h, with state.
  bool first = false;           // Forget what came of an older copy.
  bool last = false;            // The copy is complete.
  UnitWindows windows = {};     // With `last`: which updates the rows have.
};

// The copy of a data_parallel table on this node has every acknowledged update.
struct CopyConfirmed {
  TableId table{};
};

// By the primary of a data_parallel table: `node`, which was to lose its copy, has lost it.
struct CopyGone {
  TableId table{};
  NodeId node{};
};

// An averaging of replica groups.
struct DecidedSync {
  struct Table {
    TableId table{};
    std::vector<AveragedRows> rows;  // By columns, then rows.
    bool operator==(const Table&) const = default;
  };
  std::vector<Table> tables;
  bool operator==(const DecidedSync&) const = default;
};

// A sweep of a ZCH table's buckets that were chosen.
struct DecidedSweep {
  TableId table{};
  ZchSweep sweep;
  std::vector<RowInterval> rows;  // Rows of the swept buckets.
  bool operator==(const DecidedSweep&) const = default;
};

// Tables, hyper-parameters and roles of copies from here on.
struct InstalledPlan {
  PlanPtr plan;
  NodeId self{};
};

// A request that was decided before, whose record may still be on its way: its answer waits for
// this one, which lies behind.
struct DecidedBefore {};

using Decision =
    std::variant<DecidedUpdate, CopiedUpdate, CopiedRows, CopyConfirmed, CopyGone, DecidedSync,
                 DecidedSweep, ClosedSessions, InstalledPlan, DecidedBefore>;

}  // namespace embla
