// The synchronous steps of one table on a node: which contributions wait, with their memory and
// their callers, around SyncSteps, which decides (docs/synchronous_steps.md).
//
// A step that can be made is handed out as one update, whose parts are those of its contributions
// in the order of ranks: each of them has an id once, so that the sum of a row, in the order of the
// update, is that over the ranks. One step of a table is on its way at a time; units may freeze and
// ranks go meanwhile, so the step is looked at again where it is made.
//
// Units without a gate have one record of updates ("the rest", server/table/table_units.h), so a
// claim has all of them or none.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/metrics/instruments.h"
#include "core/plan/plan.h"
#include "core/plan/step_report.h"
#include "server/migration/session_set.h"
#include "server/shard/shard_node.h"
#include "server/shard/step_update.h"
#include "server/steps/sync_steps.h"
#include "server/table/table_shard.h"

namespace embla {

struct NodeTables;

// Thread safety: every method may be called from any thread; those that take a TableShard, on the
// table's lead device only.
class TableSteps {
 public:
  // An answer to be given to a caller: without this object's lock.
  struct Reply {
    UpdateDone done;
    absl::StatusOr<UpdateResult> result;
  };
  using Replies = std::vector<Reply>;
  static void Send(Replies replies);

  struct Step {
    SyncSteps::ReadyStep ready;
    UpdateBatch batch;  // Sum of the contributions.
  };
  using StepPtr = std::shared_ptr<const Step>;

  // `clock` is not owned and outlives this object; `metrics` may be null.
  TableSteps(const TableSpec& spec, const Clock& clock, Metrics* metrics);

  // Takes the contribution `batch` in, whose parts fit the table: it is answered when its units
  // have stepped, or now.
  Replies Take(TableShard& shard, UpdateBatch batch, const NodeTables& tables, UpdateDone done);
  // Finds out which units are here, and which are frozen. Null: none is.
  Replies LookAt(TableShard* shard, const NodeTables& tables);
  // `steps` is of a plan that is installed, or will be unless the process dies.
  Replies Follow(const StepPlan& steps, const NodeTables& tables);
  Replies Drop(const SessionSet& sessions, const NodeTables& tables);
  // Answers all that wait with `why`, as all that come later.
  Replies Stop(const absl::Status& why);

  // The step that can be made, unless one is on its way, or nothing waits; Made or NotMade follows.
  StepPtr Next();
  // Whether it can still be made. Requires: LookAt was called in the same task.
  bool IsStill(const Step& step) const;
  // On the lead device, with the record of the step: what is to be told when that is written.
  Replies Commit(const Step& step, const NodeTables& tables);
  void Made();
  // The step could not be made (Aborted: another one can be by now, and no caller is told).
  Replies NotMade(const Step& step, const absl::Status& why, const NodeTables& tables);
  // By an earlier process.
  void NoteMade(std::uint64_t step);

  StepReport Report() const;
  // The first step that no unit has ever made here.
  std::uint64_t first_unmade() const;

 private:
  struct Held {
    UpdateBatch batch;
    UpdateDone done;
    absl::Time since;
  };
  // Units that have moved away, by the node that has them (0: not known), and their epoch there.
  using Elsewhere = std::map<std::pair<NodeId, UnitEpoch>, UnitSet>;
  // Units of the table that are here, by the step that it makes next.
  struct Here {
    std::map<std::uint64_t, UnitSet> by_step;
    UnitSet rest;  // Units without gates.
    std::vector<ColumnRange> cuts;
    UnitSet frozen;
    Elsewhere elsewhere;
  };
  static Here Look(TableShard& shard, const TableSpec& spec);
  absl::Status Check(const UpdateBatch& batch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<UnitSet> AppliedOf(TableShard& shard, const UpdateBatch& batch) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LookLocked(TableShard* shard, const NodeTables& tables, Replies& replies)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Include(std::vector<SyncSteps::Answer> answers, const NodeTables& tables, Replies& replies)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountWaiting() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  UpdateBatch Join(const SyncSteps::ReadyStep& ready) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const TableSpec spec_;  // Only fields that never change are read.
  const StepUpdates updates_;
  const Clock& clock_;  // Not owned; outlives this object.
  const StepMetrics metrics_;

  mutable Mutex mu_;
  SyncSteps steps_ ABSL_GUARDED_BY(mu_);
  std::map<SyncSteps::Ticket, Held> held_ ABSL_GUARDED_BY(mu_);
  SyncSteps::Ticket last_ticket_ ABSL_GUARDED_BY(mu_) = 0;
  UnitSet rest_ ABSL_GUARDED_BY(mu_);
  Elsewhere elsewhere_ ABSL_GUARDED_BY(mu_);
  std::vector<ColumnRange> cuts_ ABSL_GUARDED_BY(mu_);  // Column cuts of which the node has units.
  // Version of the table's units that was last read.
  std::uint64_t seen_version_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_on_its_way_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status stopped_ ABSL_GUARDED_BY(mu_);
  // Since when ranks can be missed: a step was made, or members changed.
  absl::Time progress_at_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
