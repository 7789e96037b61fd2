// One update batch on its way through the devices of a node.
//
//   prepare  every device asks whether the session is still open, and collects and sorts what is
//            for its rows; the first device of each table also looks whether the update has been
//            applied before and asks the gates of units that may be on the move
//   agree    any device's error is everybody's, before anything is changed
//   write    with a journal: one device appends what was decided, and all agree once more
//   apply    the first device of each table records the update and, for replicated tables, gives it
//            its place in the order; every device steps its rows
//
// Rows that a gate refuses are left out on all devices, and named in the answer.
//
// A table's updates run on all devices that hold it, in one order: so a retry that is queued behind
// its first attempt is answered when that one has been applied, everywhere on the node.
//
// Failpoint (core/base/failpoint.h): update.recorded. Planted damage (core/base/planted_damage.h),
// to one update on one device: update.lose, update.double.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "server/shard/journal.h"
#include "server/shard/log_ticket.h"
#include "server/shard/node_tables.h"
#include "server/shard/replica_tasks.h"
#include "server/shard/replicator.h"
#include "server/shard/request_task.h"
#include "server/shard/shard_node.h"
#include "server/shard/table_steps.h"
#include "server/table/update_units.h"

namespace embla {

class UpdateTask final : public RequestTask {
 public:
  // Origin of an update of a replicated table when this node is a replica.
  struct FromPrimary {
    std::uint64_t reign = 0;
    std::uint64_t order = 0;
    std::optional<PlanVersion>
        term;        // The plan since which it is the primary; absent in a journal.
    TableSpec spec;  // The hyper-parameters that the primary used.
  };

  // Checks `update` against `tables`. `from_primary` is empty for updates of trainers.
  static absl::StatusOr<std::unique_ptr<UpdateTask>> Make(const NodeContext& node,
                                                          NodeTablesPtr tables,
                                                          SharedUpdatePtr update,
                                                          std::optional<FromPrimary> from_primary,
                                                          absl::Time deadline);

  // Applies what an earlier process decided: no gate is asked, nothing is sent or written down.
  // `decided` is that of `update`. DataLoss: it does not fit what is here.
  static absl::StatusOr<std::unique_ptr<UpdateTask>> MakeDecided(const NodeContext& node,
                                                                 NodeTablesPtr tables,
                                                                 SharedUpdatePtr update,
                                                                 std::vector<DecidedTable> decided,
                                                                 absl::Time time);

  // A synchronous step (step.update), which is made if it is still the one that can be.
  static absl::StatusOr<std::unique_ptr<UpdateTask>> MakeStep(const NodeContext& node,
                                                              NodeTablesPtr tables,
                                                              TableSteps::StepPtr step);

  // Sets the receiver of the result: a trainer, through `replicator` where tables are replicated
  // (not owned; outlives the task), the journal's player, or the primary. Answers wait for the
  // journal and may come after the node is destroyed.
  void SetCaller(Replicator& replicator, UpdateDone done);
  void SetCaller(Replicator& replicator, AppliedDone done);
  void SetCaller(ReplicaDone done, CopyApplied applied) {
    replica_done_ = std::move(done);
    applied_ = std::move(applied);
  }
  UpdateDone TakeDone() { return std::move(done_); }
  AppliedDone TakeAppliedDone() { return std::move(applied_done_); }
  ReplicaDone TakeReplicaDone() { return std::move(replica_done_); }

  bool replicates() const;

  std::size_t bytes() const { return update_->keep_alive.size(); }

  void Run(std::uint32_t device) override;
  void Finish() override;

 private:
  struct TableWork {
    const NodeTable* table = nullptr;
    std::uint32_t group = 0;
    std::vector<const UpdatePart*> parts;
    std::vector<std::uint32_t> part_indices;
    std::size_t ids = 0;
    std::size_t expected = 0;            // Ids times columns.
    std::atomic<std::size_t> found = 0;  // Relaxed: the agreement orders it.
    // Set by the lead device before the agreement, read by others after it.
    BoundsMode bounds = BoundsMode::kError;
    bool applied_before = false;  // Nothing is left to apply.
    // Decisions about units with gates; none for a table without them.
    std::optional<UpdateUnits> units;
    // Set by the lead device, read in Finish. Replicated tables only.
    std::uint64_t order = 0;  // The table's position after this task.
    bool need_snapshot = false;
    std::uint64_t life = 0;  // Life of the copy.

    TableShard& shard() const { return *table->shards[group]; }
    RowIntervals Skipped(ColumnRange columns) const {
      return units.has_value() ? units->Skipped(columns) : RowIntervals();
    }
  };
  // A table's slice on a device, with what was prepared for it.
  struct SliceWork {
    TableWork* work;
    OwnSlice* own;
    UpdateShare* share;
  };

  UpdateTask(const NodeContext& node, NodeTablesPtr tables, SharedUpdatePtr update,
             std::optional<FromPrimary> from_primary, absl::Time deadline);

  absl::Status Plan();
  absl::Status PlanPart(std::uint32_t index);
  absl::Status PlanStep();
  TableWork& WorkOf(const NodeTable& table, std::uint32_t group);

  absl::Status Prepare(std::uint32_t device, std::vector<SliceWork>& slices);
  absl::Status PrepareTable(TableWork& work, std::uint32_t device, std::vector<SliceWork>& slices);
  absl::Status Lead(TableWork& work, std::uint32_t device);
  absl::Status LeadReplica(TableWork& work);
  absl::Status LeadUnits(TableWork& work);
  absl::Status LeadDecided(TableWork& work);
  absl::Status LeadStep(TableWork& work);
  absl::StatusOr<bool> IsApplied(TableWork& work) const;
  // FailedPrecondition: units have to be taken apart first (server/migration/record_fold.h).
  absl::Status CheckFolds(TableWork& work) const;
  absl::Status CheckRole(const NodeTable& table) const;
  absl::Status CheckFinite(const TableWork& work, std::uint32_t device) const;
  // True on all devices or on none.
  bool AgreeToApply(std::uint32_t device, const absl::Status& status);
  bool WriteDown(std::uint32_t device);
  absl::Status AppendToJournal();
  absl::Status AppendCopied();
  absl::Status CheckFound(std::uint32_t device);
  absl::Status Apply(std::uint32_t device, const std::vector<SliceWork>& slices);
  absl::Status StepRows(const SliceWork& slice, std::uint32_t device);
  void Record(TableWork& work, std::uint32_t device);
  void RecordRest(TableShard& shard) const;

  void AddRefused(const TableWork& work, UpdateResult& result) const;
  void AnswerPrimary(const absl::Status& status);
  void AnswerTrainer(const absl::Status& status);
  void AnswerPlayer(const absl::Status& status);
  void AnswerContributors(const absl::Status& status);
  // Calls `done` when what the answer promises is written down; `ticket` may be null.
  static void AnswerWhenWritten(LogTicket* ticket, const UpdateDone& done,
                                const UpdateResult& result);
  // Tables whose groups have applied enough to be averaged. Counts the update: call it once.
  std::vector<const NodeTable*> DueForAveraging() const;

  const NodeTablesPtr tables_;
  const SharedUpdatePtr update_;
  std::vector<std::unique_ptr<TableWork>> work_;
  const std::optional<FromPrimary> from_primary_;
  absl::Time now_;  // Sessions count as used at this time.
  // Set when an earlier process decided.
  std::optional<std::vector<DecidedTable>> decided_;
  // Set for a step that is made now.
  TableSteps::StepPtr step_;
  // Steps of the step's table, also for one that was decided before. Kept by tables_.
  TableSteps* steps_ = nullptr;
  TableSteps::Replies answered_;       // Set by the lead device, read in Finish.
  std::shared_ptr<LogTicket> ticket_;  // Null: the answer waits for no record.
  Replicator* replicator_ = nullptr;
  UpdateDone done_;
  AppliedDone applied_done_;
  ReplicaDone replica_done_;
  CopyApplied applied_;
};

}  // namespace embla
