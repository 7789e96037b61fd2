// A node's append-only log: what it acknowledged, in the order it happened, for the next process.
// Page: docs/node_log.md.
//
// Two threads: one writes whatever is queued as one group, one syncs whatever is written. Each
// takes all that came up while it was busy, so groups grow with the load and nobody waits for a
// timer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/mutex.h"
#include "server/log/log_format.h"
#include "server/log/log_note.h"
#include "server/log/log_recovery.h"
#include "server/log/log_segments.h"
#include "server/log/log_storage.h"

namespace embla {

struct NodeLogOptions {
  std::uint64_t segment_bytes_max = std::uint64_t{64} << 20;
  // One write of the writer; a larger record is written alone.
  std::size_t group_bytes_max = std::size_t{4} << 20;
  // Records that wait to be written, and for their sync; updates beyond are refused.
  std::size_t queue_bytes_max = std::size_t{64} << 20;
  // Room for control records on top of that.
  std::size_t control_queue_bytes = std::size_t{4} << 20;
  // How far behind a write its sync may be while no caller waits for it. Infinite: until one does.
  absl::Duration sync_delay = absl::Milliseconds(500);
  // How long the writer rests after so many bytes, for the disk to serve somebody else; empty: it
  // does not rest.
  std::function<absl::Duration(std::size_t bytes)> pause_after = {};
  LogLsn needed_from{1};  // Open replays no records below.
  // For callers who act on an update's record before it is written. A full disk is then found by
  // AppendUpdate, and accepted records are written to the room that is left, as updates at kQueued
  // always do; if there is none after all, the log breaks.
  bool accepted_is_final = false;

  absl::Status Validate() const;
};

// Told once, from a thread of the log, without a lock: it must not wait, nor destroy the log; it
// may append. OK: the level asked for is reached. Else
//   ResourceExhausted  the disk is full: the record is not in the log and never will be
//   Unavailable        the log cannot write any more; whether the record lasts is unknown
using LogDone = std::function<void(const absl::Status&)>;

// Promises: records lie in the log in the order of their LSNs, which is that of the calls. When one
// is synced, all before it are. A recovered log is the accepted records up to some LSN, none
// missing, at least all that were acknowledged at a level that survives what happened. An LSN above
// durable_lsn() may be given again after a loss of power: nothing outside the log may name one.
//
// Thread safety: every method may be called from any thread, Close by one.
// Lock order: none is taken while another is held.
class NodeLog {
 public:
  // Recovers what `storage` holds into `sink`, then is ready to append. `storage` is not owned and
  // outlives the log. Errors: DataLoss (corruption, names file and offset; no file is changed), the
  // sink's (no file is changed), ResourceExhausted (no room to begin a log), Unavailable.
  static absl::StatusOr<std::unique_ptr<NodeLog>> Open(LogStorage& storage,
                                                       const NodeLogOptions& options,
                                                       const LogSink& sink);
  ~NodeLog();  // Closes.

  // Queues a record. At kNone nothing is logged, the LSN is 0; at kNone and kQueued `done` may be
  // empty and is called before this returns, or, at kQueued while more than half of the queue is
  // used, when the record is written. Errors, with which `done` is not called:
  //   InvalidArgument    the payload is larger than payload_bytes_max()
  //   ResourceExhausted  too much is queued: slow down
  //   Unavailable        the log is closed or cannot write any more
  absl::StatusOr<LogLsn> AppendUpdate(Durability level, std::uint16_t kind, LogPayload payload,
                                      LogDone done);
  // Always synced before it is done; has room where updates have none.
  absl::StatusOr<LogLsn> AppendControl(std::uint16_t kind, LogPayload payload, LogDone done);
  // Calls `done` when no more than `bytes_max` of what is written is not synced, at once or after a
  // sync, which begins for it. The status: as for a record.
  void SyncTail(std::size_t bytes_max, LogDone done);
  // Appends a control record and waits until it is synced. Not for callbacks.
  absl::StatusOr<LogLsn> WriteControl(std::uint16_t kind, LogPayload payload);

  // Records below `keep_from` are not needed any more: notes that durably, then removes the
  // segments that have no others. Waits. One call at a time: Aborted for a second. A lower LSN than
  // before changes nothing; an error may leave segments, which the next call or Open removes.
  absl::Status Truncate(LogLsn keep_from);

  // Writes and syncs all that is queued, and ends. Not OK: some records that were acknowledged at
  // kQueued are not in the log, or may be not.
  absl::Status Close();

  std::size_t payload_bytes_max() const;
  const LogRecovery& recovery() const { return recovery_; }
  LogLsn next_lsn() const;
  LogLsn durable_lsn() const;        // This record and all before it are synced; 0: none.
  std::size_t queued_bytes() const;  // Records that wait to be written or for their sync.
  std::size_t segment_count() const;

 private:
  struct Pending {
    LogLsn lsn{};
    Durability level = Durability::kQueued;
    // Not refused while there is any room: a control record, or one that others rely on.
    bool uses_reserve = false;
    bool is_final = false;  // The log may not go on without it.
    OutgoingRecord record;
    // Size of the record; counted in queued_bytes_ until the caller is told of it.
    std::size_t bytes = 0;
    LogDone done;  // Empty: it was called, or there is none.
  };
  struct Group;

  NodeLog(LogStorage& storage, const NodeLogOptions& options, RecoveredLog recovered);
  absl::Status Start(const std::vector<std::string>& garbage);
  absl::StatusOr<LogLsn> Append(const LogRecordView& record, LogPayload payload, LogDone done)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<LogLsn> AppendAndWait(const LogRecordView& record, LogPayload payload)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Runs on the writer's thread.
  void WriteLoop();
  void Pause(absl::Duration pause) ABSL_LOCKS_EXCLUDED(mu_);
  bool TakeQueue(std::vector<Pending>* queue) ABSL_LOCKS_EXCLUDED(mu_);
  void WriteQueue(std::vector<Pending> queue);
  absl::Status MakeRoom(const Pending& record, Group* group);
  absl::Status EnsureSpare() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Flush(Group* group);
  absl::Status WriteGroup(Group* group) ABSL_LOCKS_EXCLUDED(mu_);
  void FinishWrite(Group* group) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status BeginSegment(LogLsn first_lsn) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status WaitUntilDurable() ABSL_LOCKS_EXCLUDED(mu_);
  void Refuse(const std::vector<Pending>& records, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Runs on the sync thread.
  void SyncLoop();
  LogFile* WaitForWork(LogLsn* target) ABSL_LOCKS_EXCLUDED(mu_);
  void FinishSync(LogLsn target) ABSL_LOCKS_EXCLUDED(mu_);
  void NoteWhatIsDue() ABSL_LOCKS_EXCLUDED(mu_);

  // Ends writing; every record that waits is told.
  absl::Status Break(const absl::Status& cause) ABSL_LOCKS_EXCLUDED(mu_);

  LogStorage& storage_;  // Not owned; outlives this object.
  const NodeLogOptions options_;
  const LogRecovery recovery_;
  LogSegments segments_;          // Used by the writer's thread only.
  std::size_t begun_behind_ = 0;  // Likewise. Written since the disk was told to begin.

  mutable Mutex mu_;
  CondVar queued_;                                   // Wakes the writer.
  CondVar written_;                                  // Wakes the sync thread.
  CondVar synced_;                                   // Wakes the writer that waits for a sync.
  std::vector<Pending> queue_ ABSL_GUARDED_BY(mu_);  // Accepted, not taken by the writer.
  std::size_t queued_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Pending> awaiting_sync_ ABSL_GUARDED_BY(mu_);  // Ascending.
  std::size_t unsynced_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // Written, and no sync of it has begun;
  std::size_t syncing_bytes_ ABSL_GUARDED_BY(mu_) = 0;   // begun, and not ended.
  LogLsn next_lsn_ ABSL_GUARDED_BY(mu_);
  LogLsn written_lsn_ ABSL_GUARDED_BY(mu_);
  LogLsn durable_lsn_ ABSL_GUARDED_BY(mu_);
  LogLsn keep_from_ ABSL_GUARDED_BY(mu_);
  bool sync_wanted_ ABSL_GUARDED_BY(mu_) = false;    // A caller waits: sync without delay.
  bool disk_full_ ABSL_GUARDED_BY(mu_) = false;      // There was no room for a spare segment.
  bool look_for_room_ ABSL_GUARDED_BY(mu_) = false;  // An update was refused for that.
  bool truncating_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool writer_done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status broken_ ABSL_GUARDED_BY(mu_);  // Not OK: no write any more.
  LogFile* file_ ABSL_GUARDED_BY(mu_) =
      nullptr;  // File of the current segment; changes when all is synced.
  std::vector<SegmentHeader> live_ ABSL_GUARDED_BY(mu_);  // Oldest first, with the current one.
  // A segment began: noted with its first sync.
  std::optional<LogNote> note_due_ ABSL_GUARDED_BY(mu_);

  // Used by AppendAndWait; they outlive its callers, whom a callback must not outlive.
  Mutex wait_mu_;
  CondVar waited_;

  std::thread writer_;
  std::thread syncer_;
};

}  // namespace embla
