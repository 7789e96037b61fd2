// An update of a data_parallel table on a node that follows: at its place in the primary's order,
// by the primary's hyper-parameters. One that comes too early is refused; a copy that follows
// another order asks for a snapshot instead.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "server/shard/replica_tasks.h"
#include "server/shard/update_task.h"

namespace embla {

class CopiedUpdateTask final : public UpdateTask {
 public:
  struct Origin {
    std::uint64_t reign = 0;
    std::uint64_t order = 0;
    std::optional<PlanVersion>
        term;        // The plan since which it is the primary; absent in a journal.
    TableSpec spec;  // The hyper-parameters that the primary used.
  };
  // Checks `batch`, all of whose parts are of one table, against `tables`. SetCaller is needed.
  static absl::StatusOr<std::unique_ptr<CopiedUpdateTask>> Make(const NodeContext& node,
                                                                NodeTablesPtr tables,
                                                                UpdateBatch batch, Origin origin,
                                                                absl::Time deadline);
  // The answer waits for the journal and may come after the node is destroyed.
  void SetCaller(ReplicaDone done, CopyApplied applied) {
    done_ = std::move(done);
    applied_ = std::move(applied);
  }
  ReplicaDone TakeDone() { return std::move(done_); }

  void Finish() override;

 private:
  CopiedUpdateTask(const NodeContext& node, NodeTablesPtr tables, UpdateBatch batch, Origin origin,
                   absl::Time deadline);

  absl::StatusOr<const NodeTable*> FindTable(const UpdatePart& part) const override;
  absl::Status TakeSpec(TableShard& shard, std::uint32_t device) override;
  absl::Status Decide(TableWork& work) override;
  absl::Status Append() override;
  void Record(TableWork& work, std::uint32_t device) override;

  const Origin origin_;
  // Set by the lead device, read in Finish.
  bool need_snapshot_ = false;
  std::uint64_t life_ = 0;
  ReplicaDone done_;
  CopyApplied applied_;
};

}  // namespace embla
