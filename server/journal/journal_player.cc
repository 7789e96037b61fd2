#include "server/journal/journal_player.h"

#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/journal/copied_record.h"
#include "server/journal/unit_records.h"
#include "server/journal/update_record.h"

namespace embla {
namespace {

absl::Status AtRecord(LogLsn lsn, absl::StatusCode code, const absl::Status& status) {
  return absl::Status(code, absl::StrCat("record ", ToInt(lsn),
                                         " of the journal cannot be repeated: ", status.message()));
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
    case JournalKind::kPlanDelta:
      return PlayPlan(kind, bytes.bytes());
    case JournalKind::kUpdate:
      return PlayUpdate(&DecodeUpdateRecord, std::move(bytes));
    case JournalKind::kStep:
      return PlayUpdate(&DecodeStepRecord, std::move(bytes));
    case JournalKind::kMarker:
      return absl::OkStatus();
    case JournalKind::kCopied:
      return PlayCopied(std::move(bytes));
    case JournalKind::kSync:
      return PlaySync(bytes.bytes());
    case JournalKind::kAveraged:
      return PlayAveraged(bytes.bytes());
    case JournalKind::kSweep:
      return PlaySweep(bytes.bytes());
    case JournalKind::kClosedSessions:
      return PlayClosedSessions(bytes.bytes());
    case JournalKind::kAdopted:
      return PlayAdopted(bytes.bytes());
    case JournalKind::kFolded:
      return PlayFolded(bytes.bytes());
    case JournalKind::kReserved:
      return PlayReserved(bytes.bytes());
    case JournalKind::kChunk:
      return PlayChunk(bytes.bytes());
    case JournalKind::kControl:
      return PlayControl(bytes.bytes());
  }
  return absl::FailedPreconditionError(
      absl::StrCat("it is of kind ", static_cast<int>(kind), ", which this program does not know"));
}

absl::Status JournalPlayer::PlayProcess(std::span<const std::byte> bytes) {
  EMBLA_ASSIGN_OR_RETURN(const ProcessRecord record, DecodeProcessRecord(bytes));
  units_.BeginProcess();
  if (record.log_process == units_.log_process()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("process ", record.log_process, " of the log comes as ", units_.log_process()));
}

absl::Status JournalPlayer::PlayPlan(JournalKind kind, std::span<const std::byte> bytes) {
  const PlanPtr old = node_.plan();
  EMBLA_ASSIGN_OR_RETURN(PlanRecord record, kind == JournalKind::kPlan
                                                ? DecodePlanRecord(bytes)
                                                : DecodePlanDeltaRecord(bytes, *old));
  for (const TablePlan& table : old->tables()) {
    if (record.plan->FindTable(table.spec.id) == nullptr) units_.DropTable(table.spec.id);
  }
  self_ = record.self;
  const absl::Status status = node_.InstallPlan(std::move(record.plan), record.self);
  // The node is not the one that wrote it.
  if (absl::IsInvalidArgument(status)) return absl::FailedPreconditionError(status.message());
  return status;
}

absl::Status JournalPlayer::PlayUpdate(DecodeUpdate decode, Buffer bytes) {
  EMBLA_ASSIGN_OR_RETURN(DecidedUpdate update, decode(bytes.bytes()));
  EMBLA_RETURN_IF_ERROR(ApplyToUnits(update));
  const std::size_t size = bytes.size();
  ++updates_;
  Begin(size);
  node_.Repeat(std::move(update), std::move(bytes),
               [this, size, lsn = lsn_](const absl::StatusOr<UpdateResult>& result) {
                 End(size, lsn, result);
               });
  return absl::OkStatus();
}

absl::Status JournalPlayer::PlayCopied(Buffer bytes) {
  EMBLA_ASSIGN_OR_RETURN(ReplicaMessage message, DecodeCopiedRecord(bytes.bytes()));
  const std::size_t size = bytes.size();
  Begin(size);
  node_.RepeatCopied(std::move(message), std::move(bytes),
                     [this, size, lsn = lsn_](const absl::StatusOr<ReplicaAck>& ack) {
                       End(size, lsn,
                           ack.ok() ? absl::StatusOr<UpdateResult>(UpdateResult()) : ack.status());
                     });
  return absl::OkStatus();
}

absl::Status JournalPlayer::ApplyToUnits(const DecidedUpdate& update) {
  const UpdateBatch& batch = update.batch;
  const PlanPtr plan = node_.plan();
  for (const DecidedTable& table : update.tables) {
    const TablePlan* const here = plan->FindTable(table.table);
    if (here == nullptr) continue;
    for (const DecidedUnit& unit : table.units) {
      if (!unit.applies) continue;
      const UnitId id{table.table, unit.row_granule,
                      unit.columns.begin / here->spec.column_granule_width};
      // One sender gave one number to two groups: applied in both, recorded once.
      if (here->grouped() && units_.HasApplied(id, batch.session, batch.seq)) continue;
      EMBLA_RETURN_IF_ERROR(units_.Apply(id, batch.session, batch.seq, batch.first_incomplete));
      for (const UpdateName& name : batch.contributors) {
        if (units_.HasApplied(id, name.session, name.seq)) continue;
        EMBLA_RETURN_IF_ERROR(units_.Apply(id, name.session, name.seq, name.first_incomplete));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status JournalPlayer::PlaySync(std::span<const std::byte> bytes) {
  EMBLA_ASSIGN_OR_RETURN(const SyncRecord record, DecodeSyncRecord(bytes));
  ShardNode::SyncQuery query;
  query.tables = record.tables;
  return Average(std::move(query));
}

absl::Status JournalPlayer::PlayAveraged(std::span<const std::byte> bytes) {
  EMBLA_ASSIGN_OR_RETURN(DecidedSync sync, DecodeAveragedRecord(bytes));
  ShardNode::SyncQuery query;
  for (const DecidedSync::Table& table : sync.tables) query.tables.push_back(table.table);
  query.decided = std::make_shared<const DecidedSync>(std::move(sync));
  return Average(std::move(query));
}

absl::Status JournalPlayer::Average(ShardNode::SyncQuery query) {
  EMBLA_RETURN_IF_ERROR(Drain());
  for (const TableId table : query.tables) sync_due_.erase(table);
  std::erase_if(query.tables, [this](TableId table) { return !HasTable(table); });
  Begin(0);
  node_.Sync(
      query, absl::InfiniteFuture(), [this, lsn = lsn_](const absl::StatusOr<SyncResult>& result) {
        End(0, lsn, result.ok() ? absl::StatusOr<UpdateResult>(UpdateResult()) : result.status());
      });
  return absl::OkStatus();
}

// Runs after the updates before it, in the order of the table.
absl::Status JournalPlayer::PlaySweep(std::span<const std::byte> bytes) {
  EMBLA_ASSIGN_OR_RETURN(const DecidedSweep record, DecodeSweepRecord(bytes));
  if (!HasTable(record.table)) return absl::OkStatus();
  EMBLA_RETURN_IF_ERROR(Drain());
  Begin(0);
  node_.SweepTable(
      {record.table, record.sweep, record.rows}, absl::InfiniteFuture(),
      [this, lsn = lsn_](const absl::StatusOr<SweepResult>& result) {
        End(0, lsn, result.ok() ? absl::StatusOr<UpdateResult>(UpdateResult()) : result.status());
      });
  return absl::OkStatus();
}

// Devices come to it behind the updates that are ahead.
absl::Status JournalPlayer::PlayClosedSessions(std::span<const std::byte> bytes) {
  EMBLA_ASSIGN_OR_RETURN(const ClosedSessions closed, DecodeClosedSessionsRecord(bytes));
  units_.ForgetSessions(closed.settled);
  return node_.CloseSessions(closed);
}

bool JournalPlayer::HasTable(TableId table) const {
  return node_.plan()->FindTable(table) != nullptr;
}

absl::Status JournalPlayer::Await(const std::function<void(HostDone)>& start) {
  Mutex mu;
  CondVar done;
  std::optional<absl::Status> result;
  start([&](const absl::Status& status) {
    const MutexLock lock(mu);
    result = status;
    done.NotifyAll();
  });
  const MutexLock lock(mu);
  while (!result.has_value()) done.Wait(mu);
  return *result;
}

absl::Status JournalPlayer::PlayAdopted(std::span<const std::byte> bytes) {
  EMBLA_ASSIGN_OR_RETURN(const AdoptedUnitRecord record, DecodeAdoptedUnit(bytes));
  if (!HasTable(record.unit.table)) return absl::OkStatus();
  EMBLA_ASSIGN_OR_RETURN(const UnitShape shape, node_.units().ShapeOf(record.unit));
  UnitWindows windows;
  EMBLA_RETURN_IF_ERROR(Await([&](const HostDone& done) {
    node_.units().RunInOrder(record.unit.table, [&, done] {
      windows = node_.units().WindowsOf(record.unit);
      done(absl::OkStatus());
    });
  }));
  units_.Adopt(record.unit, shape.chunks(), record.epoch, std::move(windows));
  return absl::OkStatus();
}

absl::Status JournalPlayer::PlayFolded(std::span<const std::byte> bytes) {
  EMBLA_ASSIGN_OR_RETURN(const FoldedUnitRecord record, DecodeFoldedUnit(bytes));
  if (!HasTable(record.unit.table)) return absl::OkStatus();
  EMBLA_ASSIGN_OR_RETURN(const UnitWindows windows, units_.Fold(record.unit, record.plan));
  return Await([&](const HostDone& done) {
    node_.units().RunInOrder(record.unit.table, [&, done] {
      node_.units().JoinRest(record.unit, windows, record.plan);
      done(absl::OkStatus());
    });
  });
}

absl::Status JournalPlayer::PlayReserved(std::span<const std::byte> bytes) {
  EMBLA_ASSIGN_OR_RETURN(const ReservedUnitRecord record, DecodeReservedUnit(bytes));
  if (!HasTable(record.unit.table)) return absl::OkStatus();
  EMBLA_ASSIGN_OR_RETURN(const UnitShape shape, node_.units().ShapeOf(record.unit));
  if (units_.Reserve(record.unit, shape.chunks(), record.device, record.run)) {
    EMBLA_RETURN_IF_ERROR(
        Await([&](HostDone done) { node_.units().Discard(record.unit, std::move(done)); }));
  }
  return Await([&](HostDone done) {
    node_.units().Reserve(record.unit, record.device, record.run, std::move(done));
  });
}

absl::Status JournalPlayer::PlayChunk(std::span<const std::byte> bytes) {
  EMBLA_ASSIGN_OR_RETURN(const ChunkPieceRecord piece, DecodeChunkPiece(bytes));
  if (!HasTable(piece.unit.table)) return absl::OkStatus();
  PartialChunk& partial = partial_[piece.unit];
  if (piece.offset == 0) {
    partial = {piece.chunk, Buffer::Allocate(piece.chunk_bytes), 0};
  }
  if (partial.chunk != piece.chunk || partial.filled != piece.offset ||
      partial.rows.size() != piece.chunk_bytes) {
    return absl::DataLossError("a piece of a chunk does not follow the one before it");
  }
  if (!piece.rows.empty()) {
    std::memcpy(partial.rows.data() + piece.offset, piece.rows.data(), piece.rows.size());
  }
  partial.filled += piece.rows.size();
  if (partial.filled < piece.chunk_bytes) return absl::OkStatus();
  Buffer rows = std::move(partial.rows);
  partial_.erase(piece.unit);
  return StageChunk(piece.unit, piece.chunk, std::move(rows));
}

absl::Status JournalPlayer::StageChunk(const UnitId& unit, const Chunk& chunk, Buffer rows) {
  EMBLA_RETURN_IF_ERROR(units_.Stage(unit, chunk));
  return Await([&](HostDone done) {
    node_.units().Stage(unit, chunk.chunk, std::move(rows), std::move(done));
  });
}

absl::Status JournalPlayer::PlayControl(std::span<const std::byte> bytes) {
  EMBLA_ASSIGN_OR_RETURN(const UnitControlRecord control, DecodeUnitControl(bytes));
  const UnitId& unit = control.unit;
  if (!HasTable(unit.table)) return absl::OkStatus();
  EMBLA_RETURN_IF_ERROR(units_.Control(unit, control.record));
  UnitHost& host = node_.units();
  if (std::holds_alternative<SealRecord>(control.record) && units_.IsAnew(unit)) {
    return Await([&](HostDone done) { host.Reset(unit, std::move(done)); });
  }
  if (std::holds_alternative<OwnRecord>(control.record)) {
    // The mover sets the gate when it begins.
    return Await([&](HostDone done) { host.Install(unit, nullptr, std::move(done)); });
  }
  if (std::holds_alternative<RelocateRecord>(control.record)) {
    return Await([&](HostDone done) { host.Relocate(unit, std::move(done)); });
  }
  if (std::holds_alternative<TrimRecord>(control.record)) {
    return Await([&](HostDone done) { host.Trim(unit, std::move(done)); });
  }
  if (std::holds_alternative<DiscardRecord>(control.record)) {
    return Await([&](HostDone done) { host.Discard(unit, std::move(done)); });
  }
  return absl::OkStatus();
}

absl::StatusOr<RestoredNode> JournalPlayer::Finish() {
  EMBLA_RETURN_IF_ERROR(Drain());
  units_.BeginProcess();
  RestoredNode node;
  node.self = self_;
  node.log_process = units_.log_process();
  node.units = std::move(units_).Take();
  return node;
}

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
