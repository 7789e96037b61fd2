// A rank's contribution to a synchronous step, on its way into the table's steps: the lead device
// looks at it, and queues the steps that can be made now.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/shard/decision_task.h"
#include "server/shard/node_tables.h"
#include "server/shard/table_steps.h"

namespace embla {

class ContributionTask final : public DecisionTask {
 public:
  // Checks `batch`, which has a claim, against `tables`.
  static absl::StatusOr<std::unique_ptr<ContributionTask>> Make(const NodeContext& node,
                                                                NodeTablesPtr tables,
                                                                UpdateBatch batch,
                                                                absl::Time deadline);
  void SetCaller(UpdateDone done) { done_ = std::move(done); }
  UpdateDone TakeDone() { return std::move(done_); }
  std::size_t bytes() const { return batch_.memory.size(); }

  void Run(std::uint32_t device) override;
  void Finish() override;

 private:
  ContributionTask(const NodeContext& node, NodeTablesPtr tables, UpdateBatch batch,
                   absl::Time deadline)
      : DecisionTask(node, deadline), tables_(std::move(tables)), batch_(std::move(batch)) {
    MeasureInto(batch_.device_times);
  }
  absl::Status Plan();
  absl::Status Check(std::uint32_t device) const;
  // Whether the contribution is in a step that was made before.
  static bool IsRepeated(const TableSteps::Reply& reply) {
    return reply.result.ok() && reply.result->duplicate;
  }

  const NodeTablesPtr tables_;
  UpdateBatch batch_;  // Until it is given to the steps.
  std::shared_ptr<TableShard> shard_;
  TableDurability durability_ = TableDurability::kNode;
  std::shared_ptr<TableSteps> steps_;
  UpdateDone done_;
  TableSteps::Replies replies_;
};

// Queues the step that can be made now, if there is one and none is on its way.
void SubmitNextStep(const NodeContext& node, TableId table);

}  // namespace embla
