#include "server/shard/replica_tasks.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/status_macros.h"
#include "server/shard/journal.h"
#include "server/table/row_io.h"

namespace embla {

ProbeTask::ProbeTask(const NodeContext& node, const NodeTable& table, std::uint64_t reign,
                     PlanVersion term, CopyApplied applied, ReplicaDone done)
    : DecisionTask(node, absl::InfiniteFuture()),
      shard_(table.shard()),
      copy_(table.copy),
      inbox_(table.inbox),
      durability_(table.spec.durability),
      reign_(reign),
      term_(term),
      applied_(std::move(applied)),
      done_(std::move(done)) {
  devices_ = DeviceSet::Of(shard_->lead_device());
}

void ProbeTask::Run(std::uint32_t device) {
  if (Begin()) SetError(device, Look());
}

absl::Status ProbeTask::Look() {
  EMBLA_RETURN_IF_ERROR(copy_->Follow(term_));
  const ReplicaPosition& position = shard_->replica_position();
  // A copy that no primary has touched has the initial values, like everybody's at order 0.
  const bool follows = position.reign == 0 || position.reign == reign_;
  ack_.need_snapshot = !position.complete || !follows;
  ack_.order = follows ? position.order : 0;  // Also with half a copy: its primary may go on.
  ack_.life = copy_->life();
  ack_.early_max = CopyInbox::kEarlyMax;
  const bool is_written = node_.journal == nullptr || inbox_->IsWritten(reign_, ack_.order);
  if (is_written) return absl::OkStatus();
  return AppendToJournal(DecidedBefore(), node_.journal->LevelOf(durability_));
}

void ProbeTask::Finish() {
  if (const absl::Status status = Outcome(); !status.ok()) return done_(status);
  applied_(ack_);
  AnswerWhenWritten(std::move(done_), ack_);
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
                                         CopiedRows piece, const RowBlock& block,
                                         std::optional<Sender> sender, CopyApplied applied,
                                         ReplicaDone done)
    : DecisionTask(node, absl::InfiniteFuture()),
      shard_(table.shard()),
      copy_(table.copy),
      durability_(table.spec.durability),
      piece_(std::move(piece)),
      block_(block),
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
  shard_->rest() = piece_.windows;
  shard_->replica_position().complete = true;
}

absl::Status InstallSnapshotTask::Decide() {
  if (sender_.has_value()) EMBLA_RETURN_IF_ERROR(copy_->Follow(sender_->term));
  ReplicaPosition& position = shard_->replica_position();
  // One that comes late, or again, must not end a life that may be the last with everything, nor be
  // the last of a copy whose other rows went with the process before.
  if (sender_.has_value() && sender_->life != copy_->life()) {
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
  return AppendToJournal(piece_, node_.journal->LevelOf(durability_));
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

// The rectangles of slices never change: no device thread is needed.
absl::StatusOr<std::unique_ptr<ReadCopyTask>> ReadCopyTask::Make(std::shared_ptr<TableShard> shard,
                                                                 const TableSpec& spec,
                                                                 const Window& window,
                                                                 Histogram hold, WindowDone done) {
  std::unique_ptr<ReadCopyTask> task(new ReadCopyTask(std::move(shard), hold, std::move(done)));
  std::size_t before = 0;  // Windows of the slices before.
  for (std::uint32_t device = 0; device < kDevicesPerNodeMax; ++device) {
    if (!task->shard_->devices().Has(device)) continue;
    for (const OwnSlice& own : task->shard_->slices(device)) {
      const auto per_block =
          static_cast<std::int64_t>(RowsPerBlock(spec, own.columns(), /*with_state=*/true));
      const std::int64_t at_once = std::min(per_block, window.rows_max);
      const std::int64_t rows = own.slice.row_end - own.slice.row_begin;
      const auto windows = static_cast<std::size_t>((rows + at_once - 1) / at_once);
      if (window.number >= before && window.number < before + windows) {
        const auto skipped = static_cast<std::int64_t>(window.number - before) * at_once;
        task->device_ = device;
        task->own_ = &own;
        task->rows_.begin = own.slice.row_begin + skipped;
        task->rows_.end = std::min(task->rows_.begin + at_once, own.slice.row_end);
      }
      before += windows;
    }
  }
  task->window_.table = spec.id;
  task->window_.last = window.number + 1 == before;
  if (task->own_ != nullptr) return task;
  return absl::InternalError(absl::StrCat("table ", spec.name, " has ", before,
                                          " windows, and number ", window.number, " is asked for"));
}

void ReadCopyTask::Run(std::uint32_t device) {
  if (device == shard_->lead_device()) {
    window_.order = shard_->replica_position().order;
    if (window_.last) window_.windows = shard_->rest();
  }
  if (device != device_) return;
  const auto begun = std::chrono::steady_clock::now();
  std::vector<RowId> rows;
  for (std::int64_t row = rows_.begin; row < rows_.end; ++row) rows.push_back(RowId{row});
  absl::StatusOr<Buffer> block =
      EncodeRows(*shard_, *own_, rows, /*with_state=*/true, /*pool=*/nullptr);
  status_ = block.status();
  if (block.ok()) window_.row_block = *std::move(block);
  hold_.Observe(absl::FromChrono(std::chrono::steady_clock::now() - begun));
}

void ReadCopyTask::Finish() {
  if (!status_.ok()) return done_(status_);
  done_(std::move(window_));
}

}  // namespace embla
