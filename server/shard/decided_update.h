// An update that an earlier process of this node decided, as its journal says: no gate is asked,
// and nothing is sent or written down.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "server/shard/shard_node.h"
#include "server/shard/update_task.h"

namespace embla {

class DecidedUpdateTask final : public UpdateTask {
 public:
  // `decided` is that of `batch`. DataLoss: it does not fit what is here. SetCaller is needed.
  static absl::StatusOr<std::unique_ptr<DecidedUpdateTask>> Make(const NodeContext& node,
                                                                 NodeTablesPtr tables,
                                                                 UpdateBatch batch,
                                                                 std::vector<DecidedTable> decided,
                                                                 absl::Time time);
  // `replicator` is not owned and outlives the task.
  void SetCaller(Replicator& replicator, AppliedDone done) {
    replicator_ = &replicator;
    done_ = std::move(done);
  }
  AppliedDone TakeDone() { return std::move(done_); }

  void Finish() override;

 private:
  DecidedUpdateTask(const NodeContext& node, NodeTablesPtr tables, UpdateBatch batch,
                    std::vector<DecidedTable> decided, absl::Time time)
      : UpdateTask(node, std::move(tables), std::move(batch), absl::InfiniteFuture(), time),
        decided_(std::move(decided)) {}

  absl::StatusOr<const NodeTable*> FindTable(const UpdatePart& part) const override {
    return tables_->Find(part.table, batch().plan_version);
  }
  absl::Status Decide(TableWork& work) override;
  absl::Status Append() override { return absl::OkStatus(); }
  void Record(TableWork& work, std::uint32_t device) override;
  bool is_repeated() const override { return true; }

  const std::vector<DecidedTable> decided_;
  Replicator* replicator_ = nullptr;
  AppliedDone done_;
};

}  // namespace embla
