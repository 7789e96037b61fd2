#include "server/journal/journal_player.h"

#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/failpoint.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/journal/decision_record.h"
#include "server/journal/unit_records.h"

namespace embla {
namespace {

constexpr std::uint64_t kAllRows = std::numeric_limits<std::uint64_t>::max();

absl::Status AtRecord(LogLsn lsn, absl::StatusCode code, const absl::Status& status) {
  return absl::Status(code, absl::StrCat("record ", ToInt(lsn),
                                         " of the journal cannot be repeated: ", status.message()));
}

}  // namespace

absl::Status JournalPlayer::Begin(SnapshotChain snapshots, DamagedSnapshots& damaged) {
  SnapshotHead& head = snapshots.back()->head();
  EMBLA_RETURN_IF_ERROR(node_.images().Begin(head.image));
  for (const RestoredUnit& unit : head.units) EMBLA_RETURN_IF_ERROR(MakeRoom(unit));
  self_ = head.image.self;
  for (const TableImage& table : head.image.tables) {
    if (table.groups.has_value() && table.groups->is_due) sync_due_.insert(table.table);
    const TableSpec& spec = head.image.plan->FindTable(table.table)->spec;
    if (spec.zch.has_value()) awaited_[table.table].Insert({0, spec.rows});
  }
  units_.Restore(head.record.log_process, std::move(head.units));
  snapshots_ = std::move(snapshots);
  damaged_ = &damaged;
  return absl::OkStatus();
}

absl::Status JournalPlayer::MakeRoom(const RestoredUnit& unit) {
  if (!unit.has_memory) return absl::OkStatus();
  return Await([&](HostDone done) {
    node_.units().Reserve(unit.unit, unit.device, unit.run, std::move(done));
  });
}

absl::Status JournalPlayer::WriteRows(std::uint64_t position) {
  while (!snapshots_.empty()) {
    SnapshotReader& oldest = *snapshots_.front();
    const bool is_last = snapshots_.size() == 1;
    EMBLA_RETURN_IF_ERROR(WriteRows(oldest, is_last, is_last ? position : kAllRows));
    EMBLA_ASSIGN_OR_RETURN(const SnapshotReader::Rows* const left, FrontOf(oldest));
    if (left != nullptr) break;
    snapshots_.erase(snapshots_.begin());
    if (!is_last) continue;
    EMBLA_RETURN_IF_ERROR(Drain());
    node_.images().End();
    awaited_.clear();
  }
  return absl::OkStatus();
}

absl::StatusOr<SnapshotReader::Rows*> JournalPlayer::FrontOf(SnapshotReader& snapshot) {
  absl::StatusOr<SnapshotReader::Rows*> rows = snapshot.Front();
  // A bad sector is damage like any other: the snapshots before this one do without it.
  if (absl::IsDataLoss(rows.status()) || absl::IsUnavailable(rows.status())) {
    damaged_->numbers.insert(snapshot.head().record.number);
    damaged_->why.Update(rows.status());
  }
  return rows;
}

void JournalPlayer::Arrive(TableId table, RowInterval rows) {
  if (const auto awaited = awaited_.find(table); awaited != awaited_.end()) {
    awaited->second.Erase(rows);
  }
}

absl::Status JournalPlayer::WriteRows(SnapshotReader& snapshot, bool is_last,
                                      std::uint64_t position) {
  while (true) {
    EMBLA_ASSIGN_OR_RETURN(SnapshotReader::Rows* const rows, FrontOf(snapshot));
    if (rows == nullptr || rows->position > position) return absl::OkStatus();
    CrashPoint("recovery.rows");
    const std::size_t size = rows->bytes.size();
    BeginAhead(size);
    node_.images().Write(rows->window, rows->replica_group, std::move(rows->bytes),
                         [this, size, lsn = lsn_](const absl::Status& status) {
                           End(size, lsn,
                               status.ok() ? absl::StatusOr<Applied>(Applied()) : status);
                         });
    if (is_last) Arrive(rows->window.table, rows->window.rows);
    snapshot.Pop();
  }
}

absl::Status JournalPlayer::Play(const LogRecordView& record) {
  EMBLA_RETURN_IF_ERROR(FirstError());
  EMBLA_RETURN_IF_ERROR(WriteRows(ToInt(record.lsn)));
  CrashPoint("recovery.record");
  lsn_ = record.lsn;
  ++records_;
  bytes_ += record.payload.size();
  Buffer bytes = buffers_.Take(record.payload.size());
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
    case JournalKind::kClosedSessions:
    case JournalKind::kUpdate:
    case JournalKind::kStep:
    case JournalKind::kBefore:
    case JournalKind::kCopied:
    case JournalKind::kAveraged:
    case JournalKind::kSweep:
      return PlayDecision(kind, std::move(bytes));
    case JournalKind::kSync:
      return PlaySync(bytes.bytes());
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
    case JournalKind::kImage:
    case JournalKind::kTableImage:
    case JournalKind::kUnitAtRest:
    case JournalKind::kRows:
    case JournalKind::kImageEnd:
    case JournalKind::kUnitMoving:
    case JournalKind::kPlaces:
      return absl::DataLossError("it is a snapshot's");
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

absl::Status JournalPlayer::PlayDecision(JournalKind kind, const SharedBuffer& bytes) {
  EMBLA_ASSIGN_OR_RETURN(Decision decision, DecodeDecision(kind, bytes, *node_.plan()));
  if (auto* const update = std::get_if<DecidedUpdate>(&decision)) {
    EMBLA_RETURN_IF_ERROR(ApplyToUnits(*update));
    ++updates_;
    for (DecidedTable& table : update->tables) {
      const auto awaited = awaited_.find(table.table);
      if (awaited != awaited_.end()) table.awaited = awaited->second;
    }
  } else if (const auto* const sync = std::get_if<DecidedSync>(&decision)) {
    EMBLA_RETURN_IF_ERROR(Drain());
    for (const DecidedSync::Table& table : sync->tables) sync_due_.erase(table.table);
  } else if (const auto* const closed = std::get_if<ClosedSessions>(&decision)) {
    units_.ForgetSessions(closed->settled);
  } else if (const auto* const installed = std::get_if<InstalledPlan>(&decision)) {
    const PlanPtr old = node_.plan();
    for (const TablePlan& table : old->tables()) {
      if (installed->plan->FindTable(table.spec.id) == nullptr) units_.DropTable(table.spec.id);
    }
    self_ = installed->self;
    return InstallPlan(std::move(decision));
  }
  const std::size_t size = bytes.size();
  BeginAhead(size);
  node_.Apply(std::move(decision),
              [this, size, lsn = lsn_](const absl::StatusOr<Applied>& applied) {
                End(size, lsn, applied);
              });
  return absl::OkStatus();
}

// Other machines, or a newer program, may have written it: an error is not damage.
absl::Status JournalPlayer::InstallPlan(Decision decision) {
  absl::Status status;
  node_.Apply(std::move(decision),
              [&status](const absl::StatusOr<Applied>& applied) { status = applied.status(); });
  // The node is not the one that wrote it.
  if (absl::IsInvalidArgument(status)) return absl::FailedPreconditionError(status.message());
  return status;
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
  EMBLA_ASSIGN_OR_RETURN(SyncRecord record, DecodeSyncRecord(bytes));
  EMBLA_RETURN_IF_ERROR(Drain());
  for (const TableId table : record.tables) sync_due_.erase(table);
  std::erase_if(record.tables, [this](TableId table) { return !HasTable(table); });
  BeginAhead(0);
  node_.Sync({.tables = std::move(record.tables)}, absl::InfiniteFuture(),
             [this, lsn = lsn_](const absl::StatusOr<SyncResult>& result) {
               End(0, lsn, result.ok() ? absl::StatusOr<Applied>(Applied()) : result.status());
             });
  return absl::OkStatus();
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
    node_.units().Stage(unit, chunk.chunk, std::move(rows), ChunkTurn::kNow, std::move(done));
  });
}

absl::Status JournalPlayer::PlayControl(std::span<const std::byte> bytes) {
  EMBLA_ASSIGN_OR_RETURN(const UnitControlRecord control, DecodeUnitControl(bytes));
  const UnitId& unit = control.unit;
  if (!HasTable(unit.table)) return absl::OkStatus();
  EMBLA_RETURN_IF_ERROR(units_.Control(unit, control.record));
  UnitHost& host = node_.units();
  const auto* const own = std::get_if<OwnRecord>(&control.record);
  if (own != nullptr && own->lsn == kFirstLsn) {
    EMBLA_RETURN_IF_ERROR(Await([&](HostDone done) { host.Reset(unit, std::move(done)); }));
  }
  if (own != nullptr) {
    EMBLA_ASSIGN_OR_RETURN(const UnitShape shape, host.ShapeOf(unit));
    // It has the ids that it was staged with; or these come with its window, and all its rows: they
    // have changed since the snapshot before.
    Arrive(unit.table, {shape.row_begin, shape.row_end});
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
  EMBLA_RETURN_IF_ERROR(WriteRows(kAllRows));
  EMBLA_RETURN_IF_ERROR(Drain());
  units_.BeginProcess();
  RestoredNode node;
  node.self = self_;
  node.log_process = units_.log_process();
  node.units = std::move(units_).Take();
  return node;
}

void JournalPlayer::BeginAhead(std::size_t bytes) {
  const MutexLock lock(mu_);
  while (ahead_ >= kAheadMax || (ahead_ > 0 && ahead_bytes_ + bytes > ahead_bytes_max_)) {
    ended_.Wait(mu_);
  }
  ++ahead_;
  ahead_bytes_ += bytes;
}

void JournalPlayer::End(std::size_t bytes, LogLsn lsn, const absl::StatusOr<Applied>& applied) {
  const MutexLock lock(mu_);
  --ahead_;
  ahead_bytes_ -= bytes;
  if (applied.ok()) {
    due_.insert(due_.end(), applied->sync_due.begin(), applied->sync_due.end());
  } else {
    // The tables are what the log itself has made: whatever does not fit them is damage.
    error_.Update(AtRecord(lsn, absl::StatusCode::kDataLoss, applied.status()));
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
