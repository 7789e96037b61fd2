#include "server/shard/replica_tasks.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/status_macros.h"
#include "server/shard/journal.h"
#include "server/table/row_io.h"

namespace embla {
void ProbeTask::Run(std::uint32_t) {
  if (const absl::Status follows = copy_->Follow(term_); !follows.ok()) {
    ack_ = follows;
    return;
  }
  const ReplicaPosition& position = shard_->replica_position();
  // A copy that no primary has touched has the initial values, like everybody's at order 0.
  const bool follows = position.reign == 0 || position.reign == reign_;
  ack_->need_snapshot = !position.complete || !follows;
  ack_->order = ack_->need_snapshot ? 0 : position.order;
  ack_->life = copy_->life();
}

// A new reign each time: what was in the order before is not what comes into it now.
void LeadIfItMay(const NodeTable& table, Replicator& replicator) {
  ReplicaPosition& position = table.shard()->replica_position();
  const bool begins = table.copy->Lead();
  if (begins || (table.copy->leads() && position.reign == 0)) {
    LogInfo("shard", "this node leads the table table=", table.spec.name,
            " order=", position.order);
    position.reign = RandomId64();
  }
  if (table.copy->leads()) replicator.Begin(table.spec.id, position.reign, position.order);
}

void ConfirmTask::Run(std::uint32_t) {
  if (!life_.has_value()) {
    table_.shard()->replica_position().complete = true;
    return table_.copy->RepeatConfirmed();
  }
  const bool is_complete = table_.shard()->replica_position().complete;
  if (is_complete && table_.copy->Confirm(*life_)) confirmed_();
}

void LeadTask::Run(std::uint32_t device) {
  TableShard& shard = *table_.shard();
  // A newer plan may have been here before this task.
  const bool is_newer = ToInt(shard.spec_version(device)) >= ToInt(plan_);
  if (is_newer || shard.spec(device) == table_.spec) return;
  const absl::Status status = shard.SetSpec(device, table_.spec, plan_);
  EMBLA_CHECK(status.ok());  // NextTables has checked that the shape is the same.
}

InstallSnapshotTask::InstallSnapshotTask(const NodeContext& node, const NodeTable& table,
                                         CopiedRows piece, const RowBlock& block, Buffer keep_alive,
                                         std::optional<Sender> sender, CopyApplied applied,
                                         ReplicaDone done)
    : DecisionTask(node, absl::InfiniteFuture()),
      shard_(table.shard()),
      copy_(table.copy),
      piece_(std::move(piece)),
      block_(block),
      keep_alive_(std::move(keep_alive)),
      sender_(sender),
      applied_(std::move(applied)),
      done_(std::move(done)) {
  devices_ = shard_->devices();
  // The agreement is a collective of all devices.
  if (devices_.size() > 1) {
    devices_ = DeviceSet::First(static_cast<std::uint32_t>(node.devices.size()));
  }
}

void InstallSnapshotTask::Run(std::uint32_t device) {
  if (!Begin()) return;
  const bool leads = device == shard_->lead_device();
  if (!Agree(device, leads ? Decide() : absl::OkStatus())) return;
  const bool here = shard_->devices().Has(device);
  if (!Agree(device, here ? WriteRowBlock(*shard_, device, block_) : absl::OkStatus())) return;
  if (!leads || !piece_.last) return;
  shard_->replay_windows().Import(piece_.windows, node_.options.clock->Now());
  shard_->replica_position().complete = true;
}

absl::Status InstallSnapshotTask::Decide() {
  if (sender_.has_value()) EMBLA_RETURN_IF_ERROR(copy_->Follow(sender_->term));
  ReplicaPosition& position = shard_->replica_position();
  // One that comes late, or again, must not end a life that may be the last with everything.
  if (piece_.first && sender_.has_value() && sender_->life != copy_->life()) {
    life_ = copy_->life();
    out_of_order_ = true;
    return absl::AbortedError("a snapshot for an earlier life of the copy");
  }
  if (piece_.first) {
    copy_->BeginLife();
    position = {piece_.reign, piece_.order, false};
  }
  life_ = copy_->life();
  out_of_order_ =
      position.complete || position.reign != piece_.reign || position.order != piece_.order;
  if (out_of_order_) return absl::AbortedError("a piece of another snapshot");
  if (node_.journal == nullptr) return absl::OkStatus();
  return AppendToJournal(piece_);
}

void InstallSnapshotTask::Finish() {
  if (out_of_order_) {
    const ReplicaAck refused{.need_snapshot = true, .life = life_};
    applied_(refused);
    return done_(refused);
  }
  if (const absl::Status status = Outcome(); !status.ok()) return done_(status);
  const ReplicaAck ack{.order = piece_.order, .life = life_};
  applied_(ack);
  // The log has all pieces when it has the last one.
  if (!piece_.last) return done_(ack);
  // The primary acknowledges what the copy has: a process that does not find the snapshot in its
  // log would have lost that, and would still count as one that has everything.
  AnswerWhenWritten(std::move(done_), ack);
}

void TakeSnapshotTask::Run(std::uint32_t device) {
  if (device == shard_->lead_device()) {
    order_ = shard_->replica_position().order;
    windows_ = shard_->replay_windows().Export();
  }
  by_device_[device] = Encode(device);
}

TakeSnapshotTask::Blocks TakeSnapshotTask::Encode(std::uint32_t device) const {
  std::vector<Buffer> blocks;
  std::vector<RowId> rows;
  for (const OwnSlice& own : shard_->slices(device)) {
    const auto per_block = static_cast<std::int64_t>(
        RowsPerBlock(shard_->spec(device), own.columns(), /*with_state=*/true));
    for (std::int64_t first = own.slice.row_begin; first < own.slice.row_end; first += per_block) {
      rows.clear();
      const std::int64_t last = std::min(first + per_block, own.slice.row_end);
      for (std::int64_t row = first; row < last; ++row) rows.push_back(RowId{row});
      EMBLA_ASSIGN_OR_RETURN(Buffer block,
                             EncodeRows(*shard_, own, rows, /*with_state=*/true, /*pool=*/nullptr));
      blocks.push_back(std::move(block));
    }
  }
  return blocks;
}

void TakeSnapshotTask::Finish() {
  TableSnapshot snapshot;
  snapshot.order = order_;
  snapshot.windows = std::move(windows_);
  for (std::uint32_t d = 0; d < by_device_.size(); ++d) {
    if (!shard_->devices().Has(d)) continue;
    if (!by_device_[d].ok()) return done_(by_device_[d].status());
    std::move(by_device_[d]->begin(), by_device_[d]->end(),
              std::back_inserter(snapshot.row_blocks));
  }
  done_(std::move(snapshot));
}

}  // namespace embla
