// Makes a new node what its journal says: does again, in the order of the log, what is written
// there. Updates of a table run one after the other on its devices, as they did; the log is read
// ahead meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/base/mutex.h"
#include "server/journal/journal_records.h"
#include "server/journal/snapshot_files.h"
#include "server/log/log_format.h"
#include "server/migration/unit_host.h"
#include "server/mover/restored_unit.h"
#include "server/mover/unit_replay.h"
#include "server/shard/shard_node.h"
#include "server/table/row_intervals.h"

namespace embla {

// Thread safety: none.
class JournalPlayer {
 public:
  // `node` is new, not owned, and outlives this object.
  explicit JournalPlayer(ShardNode& node)
      : node_(node), ahead_bytes_max_(node.device_used_bytes().size() * kAheadBytesPerDevice) {}
  ~JournalPlayer() { static_cast<void>(Drain()); }

  // Begins with a chain of snapshots, not empty, instead of nothing: the records from the position
  // of the last one on follow. Its rows are written where they were read, after those of the
  // others. A snapshot whose rows prove damaged is added to `damaged`, which outlives this object:
  // the error that Play or Finish returns then is not of the journal.
  absl::Status Begin(SnapshotChain snapshots, DamagedSnapshots& damaged);

  // The next record. Errors, after which the player is of no use, name the record:
  //   DataLoss            it does not fit those before it
  //   FailedPrecondition  a newer program wrote it, or for other devices
  //   ResourceExhausted   less memory than before
  absl::Status Play(const LogRecordView& record);

  // Waits until all of it is done: what a mover begins with. Errors as for Play.
  absl::StatusOr<RestoredNode> Finish();

  std::uint64_t records() const { return records_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t updates() const { return updates_; }
  std::uint64_t log_process() const { return units_.log_process(); }
  // Tables whose replica groups were to be averaged when the process died.
  const std::set<TableId>& sync_due() const { return sync_due_; }

 private:
  // Decisions that are read ahead, so that every device has something to do, and finds it in a
  // cache.
  static constexpr std::size_t kAheadMax = 64;
  static constexpr std::size_t kAheadBytesPerDevice = std::size_t{8} << 20;

  // Writes the snapshots' rows that were read before record `position`.
  absl::Status WriteRows(std::uint64_t position);
  absl::Status WriteRows(SnapshotReader& snapshot, bool is_last, std::uint64_t position);
  absl::StatusOr<SnapshotReader::Rows*> FrontOf(SnapshotReader& snapshot);
  // Memory for a unit that was coming in.
  absl::Status MakeRoom(const RestoredUnit& unit);
  // From now on updates apply to the rows.
  void Arrive(TableId table, RowInterval rows);
  absl::Status PlayKind(JournalKind kind, Buffer bytes);
  absl::Status PlayProcess(std::span<const std::byte> bytes);
  absl::Status PlayDecision(JournalKind kind, const SharedBuffer& bytes);
  absl::Status InstallPlan(Decision decision);
  absl::Status PlaySync(std::span<const std::byte> bytes);
  absl::Status PlayAdopted(std::span<const std::byte> bytes);
  absl::Status PlayFolded(std::span<const std::byte> bytes);
  absl::Status PlayReserved(std::span<const std::byte> bytes);
  absl::Status PlayChunk(std::span<const std::byte> bytes);
  absl::Status PlayControl(std::span<const std::byte> bytes);

  absl::Status ApplyToUnits(const DecidedUpdate& update);
  absl::Status StageChunk(const UnitId& unit, const Chunk& chunk, Buffer rows);
  // Whether the table is there: records of units may come after the plan that drops it.
  bool HasTable(TableId table) const;
  // Waits until the unit's host has done it.
  static absl::Status Await(const std::function<void(HostDone)>& start);

  // Waits until another decision may be read ahead; End follows.
  void BeginAhead(std::size_t bytes);
  void End(std::size_t bytes, LogLsn lsn, const absl::StatusOr<Applied>& applied);
  // Waits until nothing is ahead; the first error so far.
  absl::Status Drain();
  absl::Status FirstError();

  ShardNode& node_;  // Not owned; outlives this object.
  const std::size_t ahead_bytes_max_;
  SnapshotChain snapshots_;              // With rows that are not written yet.
  DamagedSnapshots* damaged_ = nullptr;  // Not owned.
  // Rows of ZCH tables of which the last snapshot may have some. The ids there are not those by
  // which updates were decided: an update could change a row that nothing changed.
  std::map<TableId, RowIntervals> awaited_;
  BufferPool buffers_;
  std::uint64_t records_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t updates_ = 0;
  LogLsn lsn_{};  // LSN of the record that is played.
  NodeId self_{};
  UnitReplay units_;
  // The pieces of a chunk so far.
  struct PartialChunk {
    Chunk chunk;
    Buffer rows;
    std::uint64_t filled = 0;
  };
  std::map<UnitId, PartialChunk> partial_;
  std::set<TableId> sync_due_;

  Mutex mu_;
  CondVar ended_;
  std::size_t ahead_ ABSL_GUARDED_BY(mu_) = 0;
  std::size_t ahead_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<TableId> due_ ABSL_GUARDED_BY(mu_);  // Since the last Drain.
  absl::Status error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
