// Takes the rows of a whole generation of ids of a ZCH table away, at one place in the order of the
// table's updates.
//
// The table's lead device chooses the buckets: those that are wanted, here and at rest. A bucket
// that is on the move is left out, so that moves need not know of sweeps; the caller asks again.
// The effect on a chosen bucket is a function of the sweep and of the bucket alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/shard/decision_task.h"
#include "server/shard/node_tables.h"
#include "server/shard/shard_node.h"

namespace embla {

class SweepTask final : public DecisionTask {
 public:
  // Requires: `table` is a ZCH table, whose policy is ttl if the rule is kExpired.
  SweepTask(const NodeContext& node, const NodeTable& table, const ShardNode::SweepQuery& query,
            absl::Time deadline, SweepDone done);
  SweepDone TakeDone() { return std::move(done_); }

  void Run(std::uint32_t device) override;
  void Finish() override;

 private:
  // On the lead device.
  RowIntervals ChooseBuckets();
  bool WriteDown(std::uint32_t device);
  // Whether the device can do the sweep: behind its record nothing may fail.
  absl::Status ReadyOn(std::uint32_t device);
  absl::Status SweepOn(std::uint32_t device);

  const std::shared_ptr<TableShard> shard_;
  const TableDurability durability_;
  const ZchSweep sweep_;
  const RowIntervals wanted_;
  RowIntervals chosen_;               // Written by the lead device before the devices agree.
  std::vector<std::size_t> evicted_;  // By device.
  SweepDone done_;
};

}  // namespace embla
