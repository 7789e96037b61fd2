#include "server/journal/journal_player.h"

#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/journal/update_record.h"

namespace embla {
namespace {

absl::Status AtRecord(LogLsn lsn, absl::StatusCode code, const absl::Status& status) {
  return absl::Status(code, absl::StrCat("record ", ToInt(lsn), " of the journal cannot be repeated: ",
                                         status.message()));
}

}  // namespace

absl::Status JournalPlayer::Play(const LogRecordView& record) {
  EMBLA_RETURN_IF_ERROR(FirstError());
  lsn_ = record.lsn;
  ++records_;
  bytes_ += record.payload.size();
  Buffer bytes = Buffer::Allocate(record.payload.size());
  if (!record.payload.empty()) {
    std::memcpy(bytes.data(), record.payload.data(), record.payload.size());
  }
  const absl::Status status = PlayKind(static_cast<JournalKind>(record.kind), std::move(bytes));
  return status.ok() ? status : AtRecord(lsn_, status.code(), status);
}

absl::Status JournalPlayer::PlayKind(JournalKind kind, Buffer bytes) {
  switch (kind) {
    case JournalKind::kProcess:
      return PlayProcess(bytes.bytes());
    case JournalKind::kPlan:
      return PlayPlan(bytes.bytes());
    case JournalKind::kUpdate:
      return PlayUpdate(std::move(bytes));
    case JournalKind::kMarker:
      return absl::OkStatus();
    case JournalKind::kSync:
      return PlaySync(bytes.bytes());
    case JournalKind::kAdopted:
    case JournalKind::kReserved:
    case JournalKind::kChunk:
    case JournalKind::kControl:
      break;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("it is of kind ", static_cast<int>(kind), ", which this program does not know"));
}

absl::Status JournalPlayer::PlayProcess(std::span<const std::byte> bytes) {
  EMBLA_ASSIGN_OR_RETURN(const ProcessRecord record, DecodeProcessRecord(bytes));
  if (record.incarnation <= incarnation_) {
    return absl::DataLossError(absl::StrCat("process ", record.incarnation, " of the log after ",
                                            incarnation_));
  }
  incarnation_ = record.incarnation;
  return absl::OkStatus();
}

absl::Status JournalPlayer::PlayPlan(std::span<const std::byte> bytes) {
  EMBLA_ASSIGN_OR_RETURN(PlanRecord record, DecodePlanRecord(bytes));
  const absl::Status status = node_.InstallPlan(std::move(record.plan), record.self);
  // The node is not the one that wrote it.
  if (absl::IsInvalidArgument(status)) return absl::FailedPreconditionError(status.message());
  return status;
}

absl::Status JournalPlayer::PlayUpdate(Buffer bytes) {
  EMBLA_ASSIGN_OR_RETURN(DecidedUpdate update, DecodeUpdateRecord(bytes.bytes()));
  const std::size_t size = bytes.size();
  ++updates_;
  Begin(size);
  node_.Repeat(std::move(update), std::move(bytes),
               [this, size, lsn = lsn_](const absl::StatusOr<UpdateResult>& result) {
                 End(size, lsn, result);
               });
  return absl::OkStatus();
}

absl::Status JournalPlayer::PlaySync(std::span<const std::byte> bytes) {
  EMBLA_ASSIGN_OR_RETURN(const SyncRecord record, DecodeSyncRecord(bytes));
  EMBLA_RETURN_IF_ERROR(Drain());
  const PlanPtr plan = node_.plan();
  ShardNode::SyncQuery query;
  for (const TableId table : record.tables) {
    sync_due_.erase(table);
    if (plan->FindTable(table) != nullptr) query.tables.push_back(table);
  }
  Begin(0);
  node_.Sync(query, absl::InfiniteFuture(),
             [this, lsn = lsn_](const absl::StatusOr<SyncResult>& result) {
               End(0, lsn, result.ok() ? absl::StatusOr<UpdateResult>(UpdateResult())
                                       : result.status());
             });
  return absl::OkStatus();
}

absl::Status JournalPlayer::Finish() { return Drain(); }

void JournalPlayer::Begin(std::size_t bytes) {
  const MutexLock lock(mu_);
  while (ahead_ >= kAheadMax || (ahead_ > 0 && ahead_bytes_ + bytes > kAheadBytesMax)) {
    ended_.Wait(mu_);
  }
  ++ahead_;
  ahead_bytes_ += bytes;
}

void JournalPlayer::End(std::size_t bytes, LogLsn lsn, const absl::StatusOr<UpdateResult>& result) {
  const MutexLock lock(mu_);
  --ahead_;
  ahead_bytes_ -= bytes;
  if (result.ok()) {
    due_.insert(due_.end(), result->sync_due.begin(), result->sync_due.end());
  } else {
    // The tables are what the log itself has made: whatever does not fit them is damage.
    error_.Update(AtRecord(lsn, absl::StatusCode::kDataLoss, result.status()));
  }
  ended_.NotifyAll();
}

absl::Status JournalPlayer::Drain() {
  const MutexLock lock(mu_);
  while (ahead_ > 0) ended_.Wait(mu_);
  sync_due_.insert(due_.begin(), due_.end());
  due_.clear();
  return error_;
}

absl::Status JournalPlayer::FirstError() {
  const MutexLock lock(mu_);
  return error_;
}

}  // namespace embla
