// A node's state but for its rows, at one place in the order of its journal: with the journal from
// there on, and rows that were read later, it makes the node again. docs/snapshots.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/buffer.h"
#include "core/base/ids.h"
#include "core/plan/plan.h"
#include "server/migration/session_set.h"
#include "server/migration/unit_windows.h"
#include "server/shard/session_gate.h"
#include "server/table/row_intervals.h"
#include "server/table/table_shard.h"

namespace embla {

// A data_parallel table's copy.
struct CopyImage {
  ReplicaPosition position;
  // It has every acknowledged update (CopyState). The record of it may not be synced yet: it is
  // when the snapshot is whole.
  bool has_all = false;
  PlanVersion primary_since{};  // 0: another node leads.
  // The spec in force on its devices, and the plan that it is from; then the history that updates
  // are applied by (NodeTable::spec_history).
  TableSpec spec;
  PlanVersion spec_version{};
  std::vector<std::pair<PlanVersion, TableSpec>> history;
};

// The updates of a table with replica groups since the last averaging.
struct GroupImage {
  bool is_due = false;                 // An averaging is to come.
  std::vector<std::uint64_t> updates;  // By group,
  std::vector<UnitWindows> counted;    // and which ones.
  bool operator==(const GroupImage&) const = default;
};

// Rows in one memory of a device: `slice` is its rectangle.
struct PlacedRows {
  Slice slice;
  RowIntervals present;  // Not empty.
  bool operator==(const PlacedRows&) const = default;
};

struct TableImage {
  TableId table{};
  // By replica group, where the rows are; none: where the plan says. Rows that are coming in are
  // nowhere.
  std::optional<std::vector<std::vector<PlacedRows>>> places = {};
  std::vector<UnitWindows> windows;     // The rest's record of updates, by replica group.
  std::uint64_t highest_step = 0;       // The highest of a ZCH table's updates (StepBound).
  std::uint64_t first_unmade_step = 0;  // Tables with synchronous steps only.
  std::optional<CopyImage> copy;
  std::optional<GroupImage> groups;
};

struct NodeImage {
  std::uint64_t position = 0;  // The journal's next record.
  absl::Time time;
  NodeId self{};
  PlanPtr plan;
  ClosedSessions closed;
  std::vector<SessionGate::Seen> sessions;
  std::vector<TableImage> tables;
};

// Rows of all replica groups that are read at one place in the order of the devices: about 1 MiB of
// each group, or a bucket of a ZCH table.
struct RowWindow {
  TableId table{};
  ColumnRange columns;
  RowInterval rows;
  // A chunk of a unit that was coming in: it is read where it is staged, unless it is here by then.
  bool is_coming = false;
  bool operator==(const RowWindow&) const = default;
};

// Rows of a window as one device had them when the journal's next record was `position`: a row
// block with state (core/rows/row_block.h), or a chunk of a ZCH bucket (server/table/unit_io.h).
struct WindowRows {
  std::uint32_t replica_group = 0;
  std::uint64_t position = 0;
  Buffer bytes;
  absl::Duration held;  // How long the device did nothing else for them.
};

// Rows of a window that one task has read.
struct WindowRead {
  std::vector<WindowRows> rows;
  // Rows from here on are to be read by another task, but for those that `rows` have.
  std::int64_t next_row = 0;
};

// A node's image and rows, as they are taken while it serves, and given to the next process.
//
// An image is of one place in the order of all devices, between two tasks. The rows come later,
// window by window, each of a place of its own: what lies before that place in the journal is in
// them, and the next process, which applies the journal from the image on, overwrites its rows with
// the window's at that place. What it has applied to them before does not matter, as a decision
// about some rows reads and changes no others. Two kinds of decisions do: an averaging reads the
// rows of all groups, so those of a window lie on the same side of each; and which rows of a bucket
// an update of a ZCH table changes, its ids say, so a bucket takes no updates before its window
// (DecidedTable::awaited).
class NodeImages {
 public:
  struct Taken {
    NodeImage image;
    std::vector<RowWindow> windows;  // All rows of the image that are here.
    absl::Duration held;             // How long all devices stood still.
  };
  virtual ~NodeImages() = default;

  // Calls `meanwhile` while all devices stand still. Unavailable: not now, as a copy is on its way.
  // Blocks; must not be called on a device thread. Requires: a journal, and that no unit's rows are
  // changing places.
  virtual absl::StatusOr<Taken> Take(const std::function<absl::Status()>& meanwhile) = 0;
  // Reads what is here of the window, or, with `changed_only`, what has changed of it since it was
  // last read; behind the requests that came before. `done` gets the rows of each device that has
  // some, and runs on a device thread. Nothing of a table that is gone. Of changes the window may
  // be one of many times the rows, neither of a ZCH table nor of replica groups: a task reads about
  // 1 MiB of them, and says where to go on.
  virtual void Read(const RowWindow& window, bool changed_only,
                    std::function<void(absl::StatusOr<WindowRead>)> done) = 0;

  // A new node begins with `image`. Errors: those of ShardNode::InstallPlan; DataLoss: it does not
  // fit its plan.
  virtual absl::Status Begin(const NodeImage& image) = 0;
  // Rows of one group of a window, of which each device takes what it has; `done` as for Read.
  // DataLoss: they are not the window's.
  virtual void Write(const RowWindow& window, std::uint32_t replica_group, Buffer bytes,
                     std::function<void(absl::Status)> done) = 0;
  // All windows of the image have been written.
  virtual void End() = 0;
};

}  // namespace embla
