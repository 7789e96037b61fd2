// One update batch on its way through the devices of a node.
//
//   prepare  every device asks whether the update is let in, and collects and sorts what is for its
//            rows; the first device of each table also decides: what has been applied before, what
//            is on the move and left out
//   agree    any device's error is everybody's, before anything is changed
//   write    with a journal: one device appends what was decided, and all agree once more
//   apply    the first device of each table records the update and, for replicated tables, gives it
//            its place in the order; every device steps its rows
//
// An update has one of four origins, each a class of its own that says who is let in, what is
// decided, what is written down and who is told: a trainer (trainer_update.h), the contributions to
// a synchronous step (step_task.h), the primary of a data_parallel table (copied_update.h), and an
// earlier process of this node (decided_update.h).
//
// The tables of an update do not depend on each other: a CPU device decides, records and steps them
// side by side on its threads (server/storage/side_by_side.h). So Decide and Record of one update
// run at the same time, for different tables.
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

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "server/shard/decision_task.h"
#include "server/shard/node_tables.h"
#include "server/shard/replicator.h"
#include "server/shard/table_steps.h"
#include "server/storage/side_by_side.h"
#include "server/table/update_units.h"

namespace embla {

class UpdateTask : public DecisionTask {
 public:
  std::size_t bytes() const { return batch_.memory.size(); }

  void Run(std::uint32_t device) final;

 protected:
  struct TableWork {
    const NodeTable* table = nullptr;
    std::uint32_t group = 0;
    TableShard* shard = nullptr;  // The table's copy of `group`.
    absl::InlinedVector<const UpdatePart*, 2> parts;
    absl::InlinedVector<std::uint32_t, 2> part_indices;
    std::size_t first_share = 0;  // The devices have a share for each slice from it on.
    std::size_t ids = 0;
    std::size_t expected = 0;            // Ids times columns.
    std::atomic<std::size_t> found = 0;  // Relaxed: the agreement orders it.
    // Set by the lead device before the agreement, read by others after it.
    BoundsMode bounds = BoundsMode::kError;
    bool applied_before = false;  // Nothing is left to apply.
    // Decisions about units with gates; none for a table without them.
    std::optional<UpdateUnits> units;
    // Set by the lead device, read in Finish. The table's position after this task; replicated
    // tables only.
    std::uint64_t order = 0;

    RowIntervals Skipped(ColumnRange columns) const {
      return units.has_value() ? units->Skipped(columns) : RowIntervals();
    }
  };
  // Sessions count as used at `now`.
  UpdateTask(const NodeContext& node, NodeTablesPtr tables, UpdateBatch batch, absl::Time deadline,
             absl::Time now);
  // Checks the update against the tables. Requires: called once, before the task is queued.
  absl::Status Plan();

  // ---- By origin.
  // The table of a part, if it may be updated by this update. Asked when the task is made.
  virtual absl::StatusOr<const NodeTable*> FindTable(const UpdatePart& part) const = 0;
  // On every device, before anything of the update is looked at.
  virtual absl::Status Admit() const { return absl::OkStatus(); }
  // On every device of a table, before its part is decided.
  virtual absl::Status TakeSpec(TableShard&, std::uint32_t /*device*/) { return absl::OkStatus(); }
  // Whether nobody has looked for NaN before: a copy that found one would stay behind for ever.
  virtual bool checks_finite() const { return false; }
  // Decides on a table's part; on its lead device.
  virtual absl::Status Decide(TableWork& work) = 0;
  // Appends what was decided, on one device.
  virtual absl::Status Append() = 0;
  // Notes what is applied, on the table's lead device, before rows change.
  virtual void Record(TableWork& work, std::uint32_t device) = 0;
  // Whether an earlier process has counted it and written it down.
  virtual bool is_repeated() const { return false; }

  // ---- For origins.
  const UpdateBatch& batch() const { return batch_; }
  // FailedPrecondition: another node orders the updates of the replicated table.
  static absl::Status CheckLeads(const NodeTable& table);
  absl::StatusOr<bool> IsApplied(const TableWork& work) const;
  // Appends the decisions of all tables as one record.
  absl::Status AppendDecided();
  // The highest level of the update's tables. Requires: there is a journal.
  Durability Level() const;
  // In the record of the rows that have no gate.
  void RecordRest(TableShard& shard) const;
  // A replicated table: the next place in its order.
  void GiveOrder(TableWork& work, std::uint32_t device, Replicator& replicator) const;
  // Tables whose groups have applied enough to be averaged. Counts the update: call it once.
  std::vector<const NodeTable*> DueForAveraging() const;

  const NodeTablesPtr tables_;
  const absl::Time now_;
  std::span<TableWork> work_;    // A table's copy each, in the order of the batch.
  TableSteps* steps_ = nullptr;  // The table's, if this is a step. Kept by tables_.

 private:
  const UpdateBatch batch_;
  std::vector<TableWork> table_work_;  // Memory of work_.
  absl::flat_hash_map<const TableShard*, TableWork*> work_of_;
  std::size_t numbers_ = 0;  // To be stepped, on all devices; of a step: 0.
  std::size_t shares_ = 0;   // A device's, at most.

  // A part's table, and its copy of the part's replica group.
  struct PartPlace {
    const NodeTable* table = nullptr;
    TableShard* shard = nullptr;
  };
  absl::Status PlanPart(std::uint32_t index, const PartPlace& place);
  absl::Status PlanStep();
  TableWork& WorkOf(const PartPlace& place, std::uint32_t group);

  std::size_t ReceivingThreads(std::uint32_t device) const;
  // Calls `run` for every table that the device has a slice of.
  absl::Status RunTables(std::uint32_t device,
                         absl::FunctionRef<absl::Status(TableWork& work)> run);
  // The first of a device's shares of a table: one for each slice, in their order.
  UpdateShare* SharesOf(const TableWork& work, std::uint32_t device);
  absl::Status Prepare(std::uint32_t device);
  absl::Status PrepareTable(TableWork& work, std::uint32_t device);
  absl::Status CheckFinite(const TableWork& work, std::uint32_t device) const;
  // True on all devices or on none.
  bool AgreeToApply(std::uint32_t device, const absl::Status& status);
  bool WriteDown(std::uint32_t device);
  absl::Status CheckFound(std::uint32_t device);
  absl::Status Apply(std::uint32_t device);
  void RecordTable(TableWork& work, std::uint32_t device);
  absl::Status StepRows(TableWork& work, std::uint32_t device);
};

}  // namespace embla
