// The cluster's knowledge of the rows that each node keeps, so that a node which lost some of them
// is found out before it serves: a directory that is empty, or another one, or an older copy, and a
// process without a directory that is not the one that had the rows.
//
// A node that registers says which directory it has, how often that was opened, and how far its log
// goes; its heartbeats say how far the log is durable, and which plan is installed. A directory
// that was opened no more often than when it last registered was put back from a copy that was made
// before that; one whose log is shorter than it was durable, or whose plan is older than the one it
// said to have, was put back, too. A copy that is made of a running node's directory, and put back
// before the node is started again, is found out by its log's length only: by what the node's last
// heartbeat said, or, after a restart of the coordinator, by what was written down last.
//
// A coordinator whose store is put back from an older copy has forgotten records. So each node is
// told, every 5 s, what the records of three others say, and keeps it: its testimony, which comes
// back with its registration.
//
// Store: directories/ID, ID with 10 digits: {"directory", "process", "boot_id", "plan",
// "log_position", "lost_until"}. A record is written when a new process registers, when its link
// ends, and at most every 10 s while it grows.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/ids.h"
#include "core/plan/plan.h"
#include "server/coordinator/lost_rows.h"
#include "server/coordinator/node_past.h"
#include "server/state_store/state_store.h"

namespace embla {

struct DirectoryRecord {
  std::string directory;           // NodePast::directory_id; empty: none, rows live in memory.
  std::uint64_t process = 0;       // How often it was opened, when it last registered.
  std::uint64_t boot_id = 0;       // The process that registered last.
  PlanVersion plan{};              // The newest that was installed, as heartbeats said.
  std::uint64_t log_position = 0;  // Up to which the log was durable, as heartbeats said.
  // Moves that the store wrote down up to here were a predecessor's, of whose log something is
  // lost; kAbsent: none. Not told to other nodes: another store's revisions mean something else.
  Revision lost_until = kAbsent;
  bool operator==(const DirectoryRecord&) const = default;
};

// A node keeps it for the coordinator: the records of others.
struct Testimony {
  std::uint32_t boot = 0;        // CoordinatorOptions::boot of who said it.
  std::uint64_t generation = 0;  // The coordinator's store was at this generation
  Revision revision{};
  std::map<NodeId, DirectoryRecord> records;
  bool operator==(const Testimony&) const = default;
};
// One line of text.
std::string FormatTestimony(const Testimony& testimony);
// InvalidArgument.
absl::StatusOr<Testimony> ParseTestimony(std::string_view text);

// The rows that are lost with what `node` keeps: slices of tables, but for copies of data_parallel
// tables that are brought up to date by their primary.
std::vector<LostRows> RowsOnlyOn(const Plan& plan, NodeId node);

// Thread safety: none.
class DirectoryRecords {
 public:
  static absl::StatusOr<DirectoryRecords> Load(const StateStore& store);

  // Why the process `boot_id`, which comes with `past`, does not have all that the node kept;
  // empty: as far as anybody knows, it does.
  std::string WhatIsMissing(NodeId node, std::uint64_t boot_id, const NodePast& past) const;

  // Whether `boot_id` is the process that registered last.
  bool IsKnownProcess(NodeId node, std::uint64_t boot_id, const NodePast& past) const;
  // Whether the process that registered last has a directory from before what was told of it.
  bool IsOlder(NodeId node, const DirectoryRecord& told) const;
  // The records that `keeper` is to keep: of the nodes that follow it.
  std::map<NodeId, DirectoryRecord> RecordsFor(NodeId keeper) const;
  // Takes in what was told of `node`: of the process that the record is of, how far it had come;
  // of another one all, if that `is_newer`.
  absl::Status Heed(StateStore& store, NodeId node, const DirectoryRecord& told, bool is_newer);
  // The process was let in. Writes it down, if it is a new one. `has_lost`: not all is there that
  // its predecessor had.
  absl::Status Register(StateStore& store, NodeId node, std::uint64_t boot_id, const NodePast& past,
                        bool has_lost);
  // Whether the process that registered last has a directory; nothing: none has registered.
  std::optional<bool> HasDirectory(NodeId node) const;
  bool HasLost(NodeId node) const { return IsLost(node, Revision{1}); }
  // Whether a move of `node`, written down at `written`, was of a predecessor that is lost.
  bool IsLost(NodeId node, Revision written) const;
  // The node is in no plan any more: what to write, and what to do when it is written.
  static StateWrite ForgetWrite(NodeId node);
  void Forget(NodeId node);
  void Hear(NodeId node, PlanVersion plan, std::uint64_t log_position);
  // Writes what has grown: that of `node`; or of all nodes, if that was done some time ago.
  void Write(StateStore& store, NodeId node);
  void WriteAtTimes(StateStore& store, absl::Time now);

 private:
  absl::Status Commit(StateStore& store, const std::vector<NodeId>& nodes);

  std::map<NodeId, DirectoryRecord> records_;
  std::set<NodeId> unwritten_;
  absl::Time written_at_ = absl::InfinitePast();
};

}  // namespace embla
