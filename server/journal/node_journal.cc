#include "server/journal/node_journal.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/clock.h"
#include "core/base/failpoint.h"
#include "core/base/ids.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/plan/plan_delta.h"
#include "server/journal/decision_record.h"
#include "server/journal/journal_player.h"
#include "server/journal/unit_records.h"

namespace embla {
namespace {

MeteredStorage::Meters MetersOf(Metrics* metrics, RecoveryProgress& progress) {
  MeteredStorage::Meters meters;
  meters.read = [&progress](std::uint64_t bytes) { progress.NoteRead(bytes); };
  if (metrics == nullptr) return meters;
  meters.bytes = metrics->MakeCounter(MetricNamed("embla_journal_bytes_total"));
  meters.sync = metrics->MakeHistogram(MetricNamed("embla_journal_sync_seconds"));
  return meters;
}

// The error of a start. Records that nobody has any more were in a snapshot that `damaged` names.
absl::Status WithCause(const absl::Status& status, const absl::Status& damaged) {
  if (!absl::IsDataLoss(status) || damaged.ok()) return status;
  return absl::DataLossError(
      absl::StrCat(status.message(), "; a snapshot cannot be read: ", damaged.message()));
}

// The size that a file of this process may have (ulimit -f). A segment that ends before it has room
// for every record that was accepted. The lower bound is the smallest segment that a log takes.
std::uint64_t FileBytesMax() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0) return std::numeric_limits<std::uint64_t>::max();
  return std::max<std::uint64_t>(limit.rlim_cur, 512);
}

}  // namespace

NodeJournal::NodeJournal(LogStorage& storage, const NodeJournalOptions& options)
    : options_(options),
      progress_(options.directory_bytes, options.progress_every, options.on_progress),
      storage_(storage, MetersOf(options.metrics, progress_)) {
  if (options.metrics == nullptr) return;
  queue_bytes_ = options.metrics->MakeGauge(MetricNamed("embla_journal_queue_bytes"));
  progress_.SetGauges(options.metrics->MakeGauge(MetricNamed("embla_journal_recovery_ratio")),
                      options.metrics->MakeGauge(MetricNamed("embla_journal_recovered_bytes")));
}

void NodeJournal::CountRecovery() {
  if (options_.metrics == nullptr) return;
  options_.metrics->MakeHistogram(MetricNamed("embla_journal_recovery_seconds"))
      .Observe(recovery_.took);
}

absl::StatusOr<NodeJournal::Opened> NodeJournal::Open(LogStorage& storage,
                                                      const NodeJournalOptions& options,
                                                      MakeNode make_node) {
  DamagedSnapshots damaged;
  while (true) {
    const std::size_t known = damaged.numbers.size();
    EMBLA_ASSIGN_OR_RETURN(std::unique_ptr<ShardNode> node, make_node());
    absl::StatusOr<std::unique_ptr<NodeJournal>> journal =
        Recover(storage, options, *node, damaged);
    if (journal.ok()) return Opened{*std::move(journal), std::move(node)};
    if (damaged.numbers.size() == known) return WithCause(journal.status(), damaged.why);
    LogError("journal",
             "a snapshot is damaged, starting again without it: ", journal.status().message());
  }
}

absl::StatusOr<std::unique_ptr<NodeJournal>> NodeJournal::Recover(LogStorage& storage,
                                                                  const NodeJournalOptions& options,
                                                                  ShardNode& node,
                                                                  DamagedSnapshots& damaged) {
  const absl::Time start = Clock::Real().Now();
  NodeLogOptions log = options.log;
  log.accepted_is_final = true;  // Rows are updated before their record is written.
  log.segment_bytes_max = std::min(log.segment_bytes_max, FileBytesMax());
  std::unique_ptr<NodeJournal> journal(new NodeJournal(storage, options));
  RecoveryProgress& progress = journal->progress_;
  // Snapshots are read through it: their syncs are not the journal's.
  MeteredStorage snapshot_storage(
      storage, {.bytes = {}, .sync = {}, .read = [&progress](std::uint64_t bytes) {
                  progress.NoteRead(bytes);
                }});
  JournalPlayer player(node);
  log.pause_after = [&journal = *journal](std::size_t bytes) {
    return journal.has_snapshots_ ? journal.snapshots_->PauseAfter(bytes) : absl::ZeroDuration();
  };
  const auto play = [&](const LogRecordView& record) {
    const absl::Status played = player.Play(record);
    progress.NoteApplied(player.records(), player.bytes());
    return played;
  };
  EMBLA_ASSIGN_OR_RETURN(SnapshotChain snapshots, OpenSnapshots(snapshot_storage, damaged));
  JournalRecovery& recovery = journal->recovery_;
  if (!snapshots.empty()) {
    for (const std::unique_ptr<SnapshotReader>& snapshot : snapshots) {
      EMBLA_RETURN_IF_ERROR(snapshot->MakeDurable());
      recovery.snapshot_bytes += snapshot->bytes();
    }
    recovery.base = snapshots.front()->head().record.number;
    recovery.snapshot = snapshots.back()->head().record.number;
    log.needed_from = LogLsn{snapshots.back()->head().record.position};
    EMBLA_RETURN_IF_ERROR(player.Begin(std::move(snapshots), damaged));
  }
  EMBLA_ASSIGN_OR_RETURN(journal->log_, NodeLog::Open(journal->storage_, log, play));
  EMBLA_ASSIGN_OR_RETURN(recovery.node, player.Finish());
  CrashPoint("recovery.applied");
  recovery.records = player.records();
  recovery.bytes = player.bytes();
  recovery.updates = player.updates();
  journal->bytes_ = recovery.bytes;
  recovery.took = Clock::Real().Now() - start;
  progress.End();
  journal->CountRecovery();
  EMBLA_RETURN_IF_ERROR(
      journal->log_
          ->WriteControl(static_cast<std::uint16_t>(JournalKind::kProcess),
                         EncodeProcessRecord({.log_process = recovery.node.log_process}))
          .status());
  EMBLA_RETURN_IF_ERROR(journal->MakeSnapshots(storage, log, node));
  node.set_journal(journal.get());
  ShardNode::SyncQuery due;
  // The gates of units that are handed over are not there yet.
  std::set<TableId> kept;
  for (const RestoredUnit& unit : recovery.node.units) {
    if (unit.durable.released.has_value()) kept.insert(unit.unit.table);
  }
  std::set_difference(player.sync_due().begin(), player.sync_due().end(), kept.begin(), kept.end(),
                      std::back_inserter(due.tables));
  if (due.tables.empty()) return journal;
  node.Sync(due, absl::InfiniteFuture(), [](const absl::StatusOr<SyncResult>& result) {
    if (!result.ok()) LogError("journal", "averaging failed: ", result.status().message());
  });
  return journal;
}

absl::Status NodeJournal::MakeSnapshots(LogStorage& storage, const NodeLogOptions& log,
                                        ShardNode& node) {
  CrashPoint("recovery.taken_over");
  // Snapshots that were never whole, or are damaged, make room; those that were read stay.
  EMBLA_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> numbers, SnapshotStorage::List(storage));
  for (const std::uint64_t number : numbers) {
    if (number >= recovery_.base && number <= recovery_.snapshot) continue;
    const absl::Status removed = SnapshotStorage(storage, number).RemoveAll();
    if (!removed.ok()) LogWarning("journal", "a snapshot stays: ", removed.message());
  }
  std::uint64_t expected = recovery_.snapshot_bytes;
  if (recovery_.snapshot == 0) {
    for (const std::int64_t used : node.device_used_bytes()) {
      expected += static_cast<std::uint64_t>(used);
    }
  }
  snapshots_ = std::make_unique<Snapshotter>(
      options_.snapshots,
      Snapshotter::Node{.directory = storage,
                        .images = node.images(),
                        .units = node.units(),
                        .log = *log_,
                        .journal_bytes = [this] { return bytes_.load(std::memory_order_relaxed); },
                        .log_process = recovery_.node.log_process,
                        .segment_bytes_max = log.segment_bytes_max},
      recovery_.snapshot, expected, options_.metrics);
  has_snapshots_ = true;
  return absl::OkStatus();
}

void NodeJournal::StartSnapshots(Snapshotter::WhileLogged while_logged) {
  if (keeps_rows()) snapshots_->Start(std::move(while_logged));
}

absl::Status NodeJournal::AppendRecord(Durability level, JournalKind kind, LogPayload payload,
                                       Done done) {
  bytes_.fetch_add(payload.size(), std::memory_order_relaxed);
  const absl::StatusOr<LogLsn> lsn = log_->AppendUpdate(level, static_cast<std::uint16_t>(kind),
                                                        std::move(payload), std::move(done));
  queue_bytes_.Set(static_cast<double>(log_->queued_bytes()));
  return lsn.status();
}

Durability NodeJournal::LevelOf(TableDurability asked) const {
  // Such a node takes no snapshots either: records of one table would have a beginning that nobody
  // knows, and no end. CheckDurability keeps tables away that ask for more.
  if (options_.level == Durability::kNone) return Durability::kNone;
  switch (asked) {
    case TableDurability::kNode:
      return options_.level;
    case TableDurability::kQueued:
      return Durability::kQueued;
    case TableDurability::kWritten:
      return Durability::kWritten;
    case TableDurability::kSynced:
      return Durability::kSynced;
  }
  return Durability::kSynced;
}

absl::Status NodeJournal::Append(const Decision& decision, Durability level, Done done) {
  if (const auto* const installed = std::get_if<InstalledPlan>(&decision)) {
    return AppendPlan(*installed, std::move(done));
  }
  const bool is_control = std::holds_alternative<ClosedSessions>(decision);
  if (level == Durability::kNone && !is_control) {
    done(absl::OkStatus());
    return absl::OkStatus();
  }
  DecisionRecord record = EncodeDecision(decision);
  if (!is_control) {
    return AppendRecord(level, record.kind, std::move(record.payload), std::move(done));
  }
  return log_
      ->AppendControl(static_cast<std::uint16_t>(record.kind), std::move(record.payload),
                      std::move(done))
      .status();
}

absl::Status NodeJournal::AppendPlan(const InstalledPlan& installed, Done done) {
  if (installed.plan->version() == written_plan_->version()) {
    done(absl::OkStatus());
    return absl::OkStatus();
  }
  const std::string record =
      EncodePlanDeltaRecord(installed.self, DeltaBetween(*written_plan_, *installed.plan));
  const auto is_written = [this, plan = installed.plan,
                           done = std::move(done)](const absl::Status& status) {
    if (status.ok()) written_plan_ = plan;
    done(status);
  };
  return log_
      ->AppendControl(static_cast<std::uint16_t>(JournalKind::kPlanDelta), record, is_written)
      .status();
}

// The control record that relies on it lies behind it, and is synced: no level is waited for.
absl::Status NodeJournal::AppendAdopted(const UnitId& unit, UnitEpoch epoch) {
  return AppendRecord(Durability::kQueued, JournalKind::kAdopted, EncodeAdoptedUnit({unit, epoch}),
                      {});
}

absl::Status NodeJournal::AppendFolded(const UnitId& unit, PlanVersion plan) {
  return AppendRecord(Durability::kQueued, JournalKind::kFolded, EncodeFoldedUnit({unit, plan}),
                      {});
}

absl::Status NodeJournal::AppendReserved(const UnitId& unit, std::uint32_t device,
                                         const RowRun& run) {
  return AppendRecord(Durability::kQueued, JournalKind::kReserved,
                      EncodeReservedUnit({unit, device, run}), {});
}

absl::Status NodeJournal::AppendChunk(const UnitId& unit, const Chunk& chunk,
                                      std::span<const std::byte> rows) {
  if (rows.size() > kChunkBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a chunk of ", rows.size(),
                                                   " bytes cannot be written down, at most ",
                                                   kChunkBytesMax, " can"));
  }
  const std::size_t piece_bytes = std::min(kPieceBytesMax, log_->payload_bytes_max() / 2);
  std::size_t offset = 0;
  do {
    const std::size_t size = std::min(piece_bytes, rows.size() - offset);
    const ChunkPieceRecord piece{unit, chunk, rows.size(), offset, rows.subspan(offset, size)};
    RecordWriter record(kRecordHeaderBytes);
    PutChunkPiece(piece, record);
    EMBLA_RETURN_IF_ERROR(AppendRecord(Durability::kQueued, JournalKind::kChunk,
                                       std::move(record).TakePayload(), {}));
    offset += size;
  } while (offset < rows.size());
  return absl::OkStatus();
}

absl::Status NodeJournal::AppendControl(const UnitId& unit, const LogRecord& record, Done done) {
  return log_
      ->AppendControl(static_cast<std::uint16_t>(JournalKind::kControl),
                      EncodeUnitControl(unit, record), std::move(done))
      .status();
}

void NodeJournal::SyncTail(Done done) {
  constexpr std::size_t kLittle = std::size_t{256} << 10;  // A disk writes it in some 1 ms.
  log_->SyncTail(kLittle, std::move(done));
}

}  // namespace embla
