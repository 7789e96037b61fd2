// A synchronous step of a table: the sum of its contributions as one update (step.batch), which is
// made if it is still the one that can be (docs/synchronous_steps.md).
#pragma once

#include <memory>
#include <utility>

#include "server/shard/table_steps.h"
#include "server/shard/update_task.h"

namespace embla {

class StepTask final : public UpdateTask {
 public:
  static absl::StatusOr<std::unique_ptr<StepTask>> Make(const NodeContext& node,
                                                        NodeTablesPtr tables,
                                                        TableSteps::StepPtr step);

  // Answers the contributors, and queues the next step.
  void Finish() override;

 private:
  StepTask(const NodeContext& node, NodeTablesPtr tables, TableSteps::StepPtr step)
      : UpdateTask(node, std::move(tables), step->batch, absl::InfiniteFuture(),
                   node.options.clock->Now()),
        step_(std::move(step)) {}

  absl::StatusOr<const NodeTable*> FindTable(const UpdatePart& part) const override;
  absl::Status Decide(TableWork& work) override;
  absl::Status Append() override { return AppendDecided(); }
  void Record(TableWork& work, std::uint32_t device) override;

  const TableSteps::StepPtr step_;
  TableSteps::Replies answered_;  // Set by the lead device, read in Finish.
};

}  // namespace embla
