// A node's journal: its records in one log (server/log), and the node as it was when the log was
// last written. docs/journal_format.md.
//
// Failpoints (core/base/failpoint.h): recovery.rows before rows of a snapshot's window are applied,
// recovery.record before a record of the log is; recovery.applied, where the log does not say yet
// that a new process goes on; recovery.taken_over, where it does and files of no use are still
// there.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/metrics/metrics.h"
#include "server/journal/journal_records.h"
#include "server/journal/metered_storage.h"
#include "server/journal/recovery_progress.h"
#include "server/journal/snapshotter.h"
#include "server/log/node_log.h"
#include "server/mover/move_log.h"
#include "server/mover/restored_unit.h"
#include "server/shard/journal.h"
#include "server/shard/shard_node.h"

namespace embla {

struct NodeJournalOptions {
  // Updates are answered when their records have come so far, but of tables that ask for another
  // level. At kNone no updates are written: tables, hyper-parameters and moves are.
  Durability level = Durability::kWritten;
  NodeLogOptions log;
  Metrics* metrics = nullptr;  // Not owned; null counts nothing.
  // Told about once in `progress_every` while Open reads and applies, on any thread.
  std::function<void(const JournalProgress&)> on_progress = {};
  absl::Duration progress_every = absl::Seconds(1);
  std::uint64_t directory_bytes = 0;  // All files of it, for on_progress; 0: not known.
  SnapshotOptions snapshots;
};

// The result of a start.
struct JournalRecovery {
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;  // Bytes of their content.
  std::uint64_t updates = 0;
  // It began with the snapshots from `base` to `snapshot`; 0: with none. They have so many bytes.
  std::uint64_t base = 0;
  std::uint64_t snapshot = 0;
  std::uint64_t snapshot_bytes = 0;
  absl::Duration took;
  RestoredNode node;  // For the mover.
};

class NodeJournal final : public Journal, public MoveLog {
 public:
  using Done = std::function<void(const absl::Status&)>;

  // Makes a new node.
  using MakeNode = absl::FunctionRef<absl::StatusOr<std::unique_ptr<ShardNode>>()>;
  struct Opened;
  // Makes a node what the log in `storage` says, and writes its changes there from now on. A
  // snapshot that proves damaged while its rows are written spoils the node: another one is made
  // what the snapshots before it and the log say. `storage` is not owned, and outlives the journal.
  // Errors: those of `make_node` and NodeLog::Open; DataLoss (a record that does not fit those
  // before it; or a snapshot cannot be read, and nothing is there to go on from without it);
  // FailedPrecondition (of a newer program, or of a node with other devices);
  // ResourceExhausted (less memory than before).
  static absl::StatusOr<Opened> Open(LogStorage& storage, const NodeJournalOptions& options,
                                     MakeNode make_node);

  ~NodeJournal() override {
    if (snapshots_ != nullptr) StopSnapshots();
  }

  absl::Status Append(const Decision& decision, Durability level, Done done) override;
  std::uint64_t position() const override { return ToInt(log_->next_lsn()); }
  Durability LevelOf(TableDurability asked) const override;

  absl::Status AppendAdopted(const UnitId& unit, UnitEpoch epoch) override;
  absl::Status AppendFolded(const UnitId& unit, PlanVersion plan) override;
  absl::Status AppendReserved(const UnitId& unit, std::uint32_t device, const RowRun& run) override;
  absl::Status AppendChunk(const UnitId& unit, const Chunk& chunk,
                           std::span<const std::byte> rows) override;
  absl::Status AppendControl(const UnitId& unit, const LogRecord& record, Done done) override;
  void SyncTail(Done done) override;

  // Takes snapshots from now on when they are due, unless updates are not written. The mover, which
  // has begun with recovery(), outlives them: until StopSnapshots.
  void StartSnapshots(Snapshotter::WhileLogged while_logged);
  void StopSnapshots() { snapshots_->Stop(); }
  // Takes one now. Errors: Unavailable (a unit or a copy is on its way), those of the disk.
  absl::Status TakeSnapshot(const Snapshotter::WhileLogged& while_logged) {
    return snapshots_->Take(while_logged);
  }

  const JournalRecovery& recovery() const { return recovery_; }
  // Positions in the log: of its last record, and up to where all is durable.
  std::uint64_t end() const { return ToInt(log_->next_lsn()) - 1; }
  std::uint64_t durable_end() const { return ToInt(log_->durable_lsn()); }
  // Writes and syncs all of it, and ends. Errors: see NodeLog::Close.
  absl::Status Close() {
    StopSnapshots();
    return log_->Close();
  }

 private:
  NodeJournal(LogStorage& storage, const NodeJournalOptions& options);
  // Makes `node`, which is new, what is there without the `damaged` snapshots, to which it adds.
  static absl::StatusOr<std::unique_ptr<NodeJournal>> Recover(LogStorage& storage,
                                                              const NodeJournalOptions& options,
                                                              ShardNode& node,
                                                              DamagedSnapshots& damaged);
  void CountRecovery();
  absl::Status MakeSnapshots(LogStorage& storage, const NodeLogOptions& log, ShardNode& node);
  absl::Status AppendPlan(const InstalledPlan& installed, Done done);
  absl::Status AppendRecord(Durability level, JournalKind kind, LogPayload payload, Done done);

  const NodeJournalOptions options_;
  RecoveryProgress progress_;
  MeteredStorage storage_;
  Gauge queue_bytes_;
  JournalRecovery recovery_;
  // The plan of the last record of one that this process wrote; each process begins with a whole
  // plan. Only AppendPlan and its callback may touch it: devices append their decisions meanwhile.
  PlanPtr written_plan_ = std::make_shared<const Plan>();
  std::atomic<std::uint64_t> bytes_ = 0;  // Content of records, ever. Relaxed: nothing hangs on it.
  std::atomic<bool> has_snapshots_ = false;  // Whether the log's writer may look at snapshots_.
  std::unique_ptr<Snapshotter> snapshots_;   // Stopped before the log closes.
  std::unique_ptr<NodeLog> log_;             // Uses the others as it closes.
};

// A journal outlives its node's last request.
struct NodeJournal::Opened {
  std::unique_ptr<NodeJournal> journal;
  std::unique_ptr<ShardNode> node;
};

}  // namespace embla
