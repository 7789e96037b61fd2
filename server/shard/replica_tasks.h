// Replication's tasks on a node's devices: report where a replica stands, read a table's rows to
// send them, and install some that were sent. All in the order of the devices' queues, so that rows
// are those between two updates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "core/metrics/metrics.h"
#include "core/rows/row_block.h"
#include "server/shard/decision_task.h"
#include "server/shard/node_context.h"
#include "server/shard/node_tables.h"
#include "server/shard/replicator.h"
#include "server/table/device_executor.h"

namespace embla {

// Runs on a device thread when a copy has taken what its primary ordered: before that is answered,
// as the answer waits for the journal.
using CopyApplied = std::function<void(const ReplicaAck& ack)>;

// Answers a probe; on the table's lead device. The primary acknowledges what a copy says it has: so
// the answer waits for the records of updates that came before, as theirs do.
class ProbeTask final : public DecisionTask {
 public:
  ProbeTask(const NodeContext& node, const NodeTable& table, std::uint64_t reign, PlanVersion term,
            CopyApplied applied, ReplicaDone done);
  ReplicaDone TakeDone() { return std::move(done_); }

  void Run(std::uint32_t device) override;
  void Finish() override;

 private:
  absl::Status Look();

  const std::shared_ptr<TableShard> shard_;
  const std::shared_ptr<CopyState> copy_;
  const std::shared_ptr<CopyInbox> inbox_;
  const TableDurability durability_;
  const std::uint64_t reign_;
  const PlanVersion term_;
  const CopyApplied applied_;
  ReplicaDone done_;
  ReplicaAck ack_;  // Set by the lead device, read in Finish.
};

// On the table's lead device, where the plan's role and what is known of the copy change: it leads
// as soon as it is to, and may. A log that is repeated decides the same at the same place.
void LeadIfItMay(const NodeTable& table, Replicator& replicator);

// The copy hears that it has every acknowledged update; on the table's lead device.
class ConfirmTask final : public DeviceTask {
 public:
  // Without `life` the copy is taken as complete, as it is. `confirmed` runs if `life` is news.
  ConfirmTask(const NodeTable& table, std::optional<std::uint64_t> life,
              std::function<void()> confirmed)
      : table_(table), life_(life), confirmed_(std::move(confirmed)) {}

  void Run(std::uint32_t device) override;
  void Finish() override {}

 private:
  const NodeTable table_;
  const std::optional<std::uint64_t> life_;
  const std::function<void()> confirmed_;  // On the device, in its order.
};

// LeadIfItMay, on the table's lead device.
class BeginTask final : public DeviceTask {
 public:
  BeginTask(const NodeTable& table, Replicator& replicator, std::function<void()> then)
      : table_(table), replicator_(replicator), then_(std::move(then)) {}

  void Run(std::uint32_t) override { LeadIfItMay(table_, replicator_); }
  void Finish() override { then_(); }

 private:
  const NodeTable table_;
  Replicator& replicator_;  // Not owned; outlives the task.
  const std::function<void()> then_;
};

// Gives a copy that has begun to lead the plan's hyper-parameters; on all devices of the table.
class LeadTask final : public DeviceTask {
 public:
  LeadTask(const NodeTable& table, PlanVersion plan) : table_(table), plan_(plan) {}

  void Run(std::uint32_t device) override;
  void Finish() override {}

 private:
  const NodeTable table_;
  const PlanVersion plan_;
};

// Installs one piece of a snapshot. On the table's device, or, when it has several, on all devices
// of the node: they agree that the piece belongs to the copy that is coming in, and that all could
// be installed.
class InstallSnapshotTask final : public DecisionTask {
 public:
  // The primary that sends the piece now.
  struct Sender {
    PlanVersion term{};      // The plan since which it is the primary.
    std::uint64_t life = 0;  // The life of the copy that it means.
  };
  // `block` is piece.row_block, decoded. Without a sender the piece comes from this node's journal.
  // `done` of the last piece waits until that is written down.
  InstallSnapshotTask(const NodeContext& node, const NodeTable& table, CopiedRows piece,
                      const RowBlock& block, std::optional<Sender> sender, CopyApplied applied,
                      ReplicaDone done);
  ReplicaDone TakeDone() { return std::move(done_); }

  void Run(std::uint32_t device) override;
  void Finish() override;

 private:
  // On the lead device: whether the piece belongs here, which is then written down.
  absl::Status Decide();

  const std::shared_ptr<TableShard> shard_;
  const std::shared_ptr<CopyState> copy_;
  const TableDurability durability_;
  const CopiedRows piece_;
  const RowBlock block_;
  const std::optional<Sender> sender_;
  // Set by the lead device, read in Finish.
  bool out_of_order_ = false;
  std::uint64_t life_ = 0;
  const CopyApplied applied_;
  ReplicaDone done_;
};

// Reads a window of a table's copy; on all its devices, of which one has the rows.
class ReadCopyTask final : public DeviceTask {
 public:
  // Windows have about 1 MiB, and at most `rows_max` rows each.
  struct Window {
    std::size_t number = 0;
    std::int64_t rows_max = 0;
  };
  // `spec` is the table's; `hold` counts how long a device does nothing else. Internal: there is no
  // such window.
  static absl::StatusOr<std::unique_ptr<ReadCopyTask>> Make(std::shared_ptr<TableShard> shard,
                                                            const TableSpec& spec,
                                                            const Window& window, Histogram hold,
                                                            WindowDone done);

  void Run(std::uint32_t device) override;
  void Finish() override;

 private:
  ReadCopyTask(std::shared_ptr<TableShard> shard, Histogram hold, WindowDone done)
      : shard_(std::move(shard)), hold_(hold), done_(std::move(done)) {}

  const std::shared_ptr<TableShard> shard_;
  const Histogram hold_;
  // The rows, and where they are.
  std::uint32_t device_ = 0;
  const OwnSlice* own_ = nullptr;  // The shard's.
  RowInterval rows_;
  CopiedRows window_;  // The lead device sets `order` and `windows`, the rows' device the block.
  absl::Status status_;
  WindowDone done_;
};

}  // namespace embla
