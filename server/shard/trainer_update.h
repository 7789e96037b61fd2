// An update that a trainer sent: its session is asked, gates of units on the move leave rows out,
// which the answer names, and copies of replicated tables are waited for.
#pragma once

#include <memory>
#include <utility>

#include "server/shard/shard_node.h"
#include "server/shard/update_task.h"

namespace embla {

class TrainerUpdate final : public UpdateTask {
 public:
  // Checks `batch` against `tables`. SetCaller is needed.
  static absl::StatusOr<std::unique_ptr<TrainerUpdate>> Make(const NodeContext& node,
                                                             NodeTablesPtr tables,
                                                             UpdateBatch batch,
                                                             absl::Time deadline);
  // `replicator` is not owned and outlives the task. The answer waits for the journal and may come
  // after the node is destroyed.
  void SetCaller(Replicator& replicator, UpdateDone done) {
    replicator_ = &replicator;
    done_ = std::move(done);
  }
  UpdateDone TakeDone() { return std::move(done_); }
  // Whether copies on other nodes take part.
  bool replicates() const;

  void Finish() override;

 private:
  using UpdateTask::UpdateTask;

  absl::StatusOr<const NodeTable*> FindTable(const UpdatePart& part) const override;
  absl::Status Admit() const override;
  bool checks_finite() const override { return true; }
  absl::Status Decide(TableWork& work) override;
  absl::Status Append() override { return AppendDecided(); }
  void Record(TableWork& work, std::uint32_t device) override;

  absl::Status DecideUnits(TableWork& work);
  // FailedPrecondition: units have to be taken apart first (server/migration/record_fold.h).
  absl::Status CheckFolds(const TableWork& work) const;
  // Queues the averaging of tables whose groups have applied enough.
  void AverageWhatIsDue() const;
  void AddRefused(const TableWork& work, UpdateResult& result) const;

  Replicator* replicator_ = nullptr;
  UpdateDone done_;
};

}  // namespace embla
