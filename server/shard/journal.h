// The journal of a node, from which its next process repeats everything: every update as it was
// decided, and the facts that are needed to repeat it. docs/journal_format.md.
//
// All records of a node lie in one log. Each is appended where it takes effect: when no device that
// is concerned runs anything else. So what is repeated in the log's order gives the same rows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/plan/plan.h"
#include "core/rows/request.h"
#include "server/migration/session_set.h"
#include "server/shard/averaged_rows.h"
#include "server/shard/replica_transport.h"
#include "server/table/update_units.h"
#include "server/table/zch_ids.h"

namespace embla {

// The decision on a table's part of an update.
struct DecidedTable {
  TableId table{};
  std::uint32_t replica_group = 0;
  bool applies_rest = true;  // The rows of units that are not named.
  std::vector<DecidedUnit> units;
  bool operator==(const DecidedTable&) const = default;
};

// An update that nothing can refuse any more.
struct DecidedUpdate {
  // Parts of tables that apply something; views. Also a whole synchronous step.
  UpdateBatch batch;
  std::vector<DecidedTable> tables;  // One for each table of `batch`.
  absl::Time time;                   // Sessions count as used at this time.
};

// A sweep of a ZCH table's buckets that were chosen.
struct DecidedSweep {
  TableId table{};
  ZchSweep sweep;
  std::vector<RowInterval> rows;  // Rows of the swept buckets.
  bool operator==(const DecidedSweep&) const = default;
};

// Thread safety: every method may be called from any thread.
class Journal {
 public:
  // Told once, on any thread, perhaps within the call. It must not wait. OK: the record and all
  // before it will be found by the process after this one, as far as the log's level promises.
  using Done = std::function<void(const absl::Status&)>;

  virtual ~Journal() = default;

  // Errors, with which `done` is not called and nothing is in the log:
  //   ResourceExhausted  too much waits to be written, or the disk is full: slow down
  //   InvalidArgument    the record is too large
  //   Unavailable        the log cannot write any more
  // A record that is accepted and then lost is the last one: the log says Unavailable from there
  // on.
  virtual absl::Status AppendUpdate(const DecidedUpdate& update, Done done) = 0;
  // Tells of all that was appended before. Errors as for AppendUpdate.
  virtual absl::Status AppendMarker(Done done) = 0;
  // Copies of tables with replica groups are averaged. Errors as for AppendUpdate.
  virtual absl::Status AppendSync(const DecidedSync& sync, Done done) = 0;
  // Appends a change of a data_parallel table's copy on this node that its primary ordered: an
  // update (as applied), a piece of a snapshot, or a probe: the copy has every acknowledged update;
  // or, from the primary itself, the loss of copies that it is to do without. Errors: see
  // AppendUpdate.
  virtual absl::Status AppendCopied(const ReplicaMessage& message, Done done) = 0;
  // Whether updates are written at all.
  virtual bool keeps_rows() const = 0;
  // Ids of a ZCH table lose their rows. Errors as for AppendUpdate.
  virtual absl::Status AppendSweep(const DecidedSweep& sweep, Done done) = 0;

  // Appends the sessions that are closed from here on, and blocks until they are synced. After an
  // error the record may or may not be in the log; calling again is safe.
  virtual absl::Status WriteClosedSessions(const ClosedSessions& closed) = 0;

  // The tables and hyper-parameters from here on. Blocks until the record is synced. After an error
  // it may or may not be in the log; calling again is safe.
  virtual absl::Status WritePlan(const PlanPtr& plan, NodeId self) = 0;
};

}  // namespace embla
