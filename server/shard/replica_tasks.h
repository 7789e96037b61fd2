// What replication needs from a node's devices: where a replica stands, a copy of a table to send,
// and installing one that was sent. All in the order of the devices' queues, so that a copy is of
// one moment between two updates.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/rows/row_block.h"
#include "server/shard/node_context.h"
#include "server/shard/node_tables.h"
#include "server/shard/replicator.h"
#include "server/table/device_executor.h"

namespace embla {

// Answers a probe; on the table's lead device.
class ProbeTask final : public DeviceTask {
 public:
  ProbeTask(std::shared_ptr<TableShard> shard, std::uint64_t incarnation, ReplicaDone done)
      : shard_(std::move(shard)), incarnation_(incarnation), done_(std::move(done)) {}
  ReplicaDone TakeDone() { return std::move(done_); }

  void Run(std::uint32_t device) override;
  void Finish() override { done_(ack_); }

 private:
  const std::shared_ptr<TableShard> shard_;
  const std::uint64_t incarnation_;
  ReplicaDone done_;
  ReplicaAck ack_;
};

// Installs one piece of a snapshot. On the table's device, or, when it has several, on all devices
// of the node: they agree that the piece belongs to the copy that is coming in, and that all could
// be installed.
class InstallSnapshotTask final : public DeviceTask {
 public:
  // `block` is message.row_block, decoded.
  InstallSnapshotTask(const NodeContext& node, std::shared_ptr<TableShard> shard,
                      ReplicaMessage message, const RowBlock& block, ReplicaDone done);
  ReplicaDone TakeDone() { return std::move(done_); }
  DeviceSet devices() const { return devices_; }

  void Run(std::uint32_t device) override;
  void Finish() override;

 private:
  absl::Status Install(std::uint32_t device);
  // Ok where `mine` is Ok on every device.
  absl::Status Agree(std::uint32_t device, const absl::Status& mine) const;

  const NodeContext node_;
  const std::shared_ptr<TableShard> shard_;
  const ReplicaMessage message_;
  const RowBlock block_;
  const DeviceSet devices_;
  std::vector<absl::Status> errors_;  // By device.
  bool out_of_order_ = false;         // Set by the lead device.
  ReplicaDone done_;
};

// Copies a whole table; on all its devices.
class TakeSnapshotTask final : public DeviceTask {
 public:
  TakeSnapshotTask(std::shared_ptr<TableShard> shard, std::size_t devices, SnapshotDone done)
      : shard_(std::move(shard)), by_device_(devices), done_(std::move(done)) {}

  void Run(std::uint32_t device) override;
  void Finish() override;

 private:
  using Blocks = absl::StatusOr<std::vector<Buffer>>;
  Blocks Encode(std::uint32_t device) const;

  const std::shared_ptr<TableShard> shard_;
  std::uint64_t order_ = 0;  // Set by the lead device.
  std::vector<Blocks> by_device_;
  SnapshotDone done_;
};

}  // namespace embla
