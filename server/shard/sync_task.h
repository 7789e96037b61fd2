// Averages tables with replica groups over the devices that hold their copies: at one place in the
// order of all devices, so between two updates.
//
// Units that are being handed over to another node are left out: what the source would change after
// the cut, the target would not have. The lead device asks their gates; then all devices know which
// of their rows are averaged, and the answer and the journal's record name them.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/copy_mean.h"
#include "server/shard/decision_task.h"
#include "server/shard/node_tables.h"
#include "server/shard/shard_node.h"

namespace embla {

class SyncTask final : public DecisionTask {
 public:
  // Its devices are none when no table of the query has groups; then there is only Finish to call.
  // Errors: NotFound, FailedPrecondition, Unavailable. SetCaller is needed.
  static absl::StatusOr<std::unique_ptr<SyncTask>> Make(const NodeContext& node,
                                                        NodeTablesPtr tables,
                                                        const ShardNode::SyncQuery& query,
                                                        absl::Time deadline);
  // Averages what an earlier process of this node decided: no gate is asked. Tables that are not
  // here any more are left out.
  static std::unique_ptr<SyncTask> MakeDecided(const NodeContext& node, NodeTablesPtr tables,
                                               DecidedSync decided);
  // Makes the averaging that is due for `table`, one of `tables`. No caller waits for it; errors
  // are logged.
  static std::unique_ptr<SyncTask> MakeFollowUp(const NodeContext& node, NodeTablesPtr tables,
                                                const NodeTable& table);

  void SetCaller(SyncDone done) { done_ = std::move(done); }
  SyncDone TakeDone() { return std::move(done_); }

  void Run(std::uint32_t device) override;
  void Finish() override;

 private:
  struct DeviceShare {
    std::vector<RowIntervals> rows;  // Averaged rows, by slice.
    kernels::Divergence divergence;
    absl::Duration time;
  };
  struct TableWork {
    const NodeTable* asked = nullptr;  // The table in the snapshot from which the task was made.
    // Written by the lead device of copy 0, read by all after an agreement: the table as it is now,
    // with slices that have come since, and the rows of its cuts.
    const NodeTable* table = nullptr;
    NodeTablesPtr tables;
    std::vector<std::pair<ColumnRange, RowIntervals>> chosen;
    std::vector<std::shared_ptr<UnitGate>> gates;  // Gates of the chosen units on that device.
    std::vector<DeviceShare> by_device;            // Each device writes its own.

    // The copy with slices on `device`; null: none has.
    static TableShard* CopyOn(const NodeTable& table, std::uint32_t device);
    TableShard* CopyOn(std::uint32_t device) const { return CopyOn(*table, device); }
    // The same in all layouts.
    bool IsLedBy(std::uint32_t device) const;
  };

  SyncTask(const NodeContext& node, NodeTablesPtr tables, absl::Time deadline)
      : DecisionTask(node, deadline), tables_(std::move(tables)) {}

  void Add(const NodeTable& table);
  // Updates are counted anew until the next averaging is due.
  void ResetCounts() const;
  absl::Status CanAverage(std::uint32_t device) const;
  void Choose(TableWork& work) const;
  void ListRows(TableWork& work, std::uint32_t device) const;
  bool WriteDown(std::uint32_t device);
  absl::Status AppendDecided();
  static std::vector<AveragedRows> RowsOf(const TableWork& work);
  absl::Status RunTable(TableWork& work, std::uint32_t device);
  TableSync Report(const TableWork& work) const;

  const NodeTablesPtr tables_;
  std::optional<DecidedSync> decided_;  // Absent: gates are asked.
  std::vector<TableWork> work_;
  SyncDone done_;
};

}  // namespace embla
