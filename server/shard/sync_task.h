// Averages tables with replica groups over the devices that hold their copies: at one place in the
// order of all those devices, so between two updates.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/shard/copy_mean.h"
#include "server/shard/log_ticket.h"
#include "server/shard/node_tables.h"
#include "server/shard/request_task.h"
#include "server/shard/shard_node.h"

namespace embla {

class SyncTask final : public RequestTask {
 public:
  // Its devices are none when no table of the query has groups; then there is only Finish to call.
  // Errors: NotFound, FailedPrecondition, Unavailable. SetCaller is needed.
  static absl::StatusOr<std::unique_ptr<SyncTask>> Make(const NodeContext& node,
                                                        NodeTablesPtr tables,
                                                        const ShardNode::SyncQuery& query,
                                                        absl::Time deadline);
  // What `table`, one of `tables`, is due. Nobody waits for it; errors are logged.
  static std::unique_ptr<SyncTask> MakeFollowUp(const NodeContext& node, NodeTablesPtr tables,
                                                const NodeTable& table);

  void SetCaller(SyncDone done) { done_ = std::move(done); }
  SyncDone TakeDone() { return std::move(done_); }

  void Run(std::uint32_t device) override;
  void Finish() override;

 private:
  struct DeviceShare {
    Divergence divergence;
    absl::Duration time;
  };
  struct TableWork {
    const NodeTable* table = nullptr;
    std::vector<DeviceShare> by_device;  // Each device writes its own.
  };

  SyncTask(const NodeContext& node, NodeTablesPtr tables, absl::Time deadline)
      : RequestTask(node, deadline), tables_(std::move(tables)) {}

  void Add(const NodeTable& table);
  bool WriteDown(std::uint32_t device);
  absl::Status CanAverage(std::uint32_t device) const;
  absl::Status RunTable(TableWork& work, std::uint32_t device);
  TableSync Report(const TableWork& work) const;

  const NodeTablesPtr tables_;
  std::vector<TableWork> work_;
  SyncDone done_;
  std::shared_ptr<LogTicket> ticket_;  // Null: the answer waits for no record.
};

}  // namespace embla
