#include "server/state_store/file_state_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "server/state_store/state_directory.h"
#include "server/state_store/state_format.h"

namespace embla {

struct FileStateStore::Recovered {
  StateMap map;
  AppendFile log;
  std::uint64_t snapshot_bytes = 0;
};

absl::StatusOr<FileStateStore::Recovered> FileStateStore::Recover(const std::string& directory) {
  EMBLA_RETURN_IF_ERROR(BeginStateDirectory(directory));
  EMBLA_ASSIGN_OR_RETURN(StateFiles files, ReadStateFiles(directory));
  const std::string log_path = StateLogPath(directory);
  Recovered recovered;
  recovered.map = std::move(files.map);
  recovered.snapshot_bytes = files.snapshot_bytes;
  EMBLA_ASSIGN_OR_RETURN(recovered.log, AppendFile::Open(log_path));
  if (files.log_torn_bytes > 0) {
    LogWarning("state_store", "dropped a torn commit file=", log_path, " offset=", files.log_bytes,
               " bytes=", files.log_torn_bytes);
    EMBLA_RETURN_IF_ERROR(recovered.log.Truncate(files.log_bytes));
  }
  // A frame may have been written, and its sync never answered: make it last before it is read.
  EMBLA_RETURN_IF_ERROR(recovered.log.Sync());
  EMBLA_RETURN_IF_ERROR(MarkStateDirectoryBegun(directory));
  return recovered;
}

absl::StatusOr<std::unique_ptr<FileStateStore>> FileStateStore::Open(
    const std::string& directory, const FileStateStoreOptions& options) {
  EMBLA_RETURN_IF_ERROR(MakeDirectories(directory));
  EMBLA_ASSIGN_OR_RETURN(FileLock lock, FileLock::Acquire(directory + "/LOCK"));
  EMBLA_ASSIGN_OR_RETURN(Recovered recovered, Recover(directory));
  return std::unique_ptr<FileStateStore>(
      new FileStateStore(directory, options, std::move(lock), std::move(recovered)));
}

FileStateStore::FileStateStore(std::string directory, const FileStateStoreOptions& options,
                               FileLock lock, Recovered recovered)
    : directory_(std::move(directory)),
      options_(options),
      lock_(std::move(lock)),
      log_(std::move(recovered.log)),
      snapshot_bytes_(recovered.snapshot_bytes),
      map_(std::move(recovered.map)) {}

absl::StatusOr<StateEntry> FileStateStore::Get(std::string_view key) const {
  const MutexLock lock(mu_);
  return map_.Get(key);
}

absl::StatusOr<std::vector<StateEntry>> FileStateStore::List(std::string_view prefix) const {
  const MutexLock lock(mu_);
  return map_.List(prefix);
}

std::unique_ptr<StateWatch> FileStateStore::Watch(std::string_view prefix) {
  return hub_.Watch(prefix);
}

Revision FileStateStore::revision() const {
  const MutexLock lock(mu_);
  return map_.revision();
}

absl::StatusOr<Revision> FileStateStore::Commit(std::span<const StateCompare> compares,
                                                std::span<const StateWrite> writes) {
  EMBLA_RETURN_IF_ERROR(ValidateCommit(compares, writes));
  std::string frame;
  EMBLA_RETURN_IF_ERROR(TakeTurn(compares, &frame, writes));
  if (const absl::Status status = WriteFrame(frame); !status.ok()) {
    PassTurn();
    return status;
  }
  Revision revision{};
  {
    const MutexLock lock(mu_);
    hub_.Publish(map_.Apply(writes));  // Under the lock: watchers see commits in their order.
    revision = map_.revision();
  }
  CompactIfLarge();
  PassTurn();
  return revision;
}

void FileStateStore::BeginBatch() {
  TakeTurn();
  is_batch_ = true;
  PassTurn();
}

absl::Status FileStateStore::EndBatch() {
  TakeTurn();
  is_batch_ = false;
  absl::Status status;
  if (!is_synced_) {
    {
      const MutexLock lock(mu_);
      status = broken_;
    }
    if (status.ok()) status = SyncLog();
  }
  PassTurn();
  return status;
}

void FileStateStore::TakeTurn() {
  const MutexLock lock(mu_);
  while (turn_taken_) turn_over_.Wait(mu_);
  turn_taken_ = true;
}

absl::Status FileStateStore::TakeTurn(std::span<const StateCompare> compares, std::string* frame,
                                      std::span<const StateWrite> writes) {
  const MutexLock lock(mu_);
  while (turn_taken_) turn_over_.Wait(mu_);
  EMBLA_RETURN_IF_ERROR(broken_);
  EMBLA_RETURN_IF_ERROR(map_.Check(compares));
  *frame = EncodeStateFrame(map_.next_revision(), writes);
  turn_taken_ = true;
  return absl::OkStatus();
}

void FileStateStore::PassTurn() {
  const MutexLock lock(mu_);
  turn_taken_ = false;
  turn_over_.NotifyAll();
}

absl::Status FileStateStore::WriteFrame(const std::string& frame) {
  const std::uint64_t end = log_.size();
  const absl::Status written = log_.Append(frame);
  if (written.ok()) {
    is_synced_ = false;
    return is_batch_ ? absl::OkStatus() : SyncLog();
  }
  // A full disk heals; the frame's beginning must be gone before the next one is written.
  if (!absl::IsResourceExhausted(written)) return Break(written);
  if (const absl::Status cut = log_.Truncate(end); !cut.ok()) return Break(cut);
  const absl::Status synced = SyncLog();
  return synced.ok() ? written : synced;
}

absl::Status FileStateStore::SyncLog() {
  const absl::Time begun = Clock::Real().Now();
  const absl::Status synced = log_.Sync();
  if (options_.on_synced) options_.on_synced(Clock::Real().Now() - begun);
  is_synced_ = synced.ok();
  return synced.ok() ? synced : Break(synced);
}

void FileStateStore::CompactIfLarge() {
  if (log_.size() <= std::max(options_.log_bytes_max, snapshot_bytes_)) return;
  StateSnapshot snapshot;
  {
    const MutexLock lock(mu_);
    snapshot = {map_.revision(), map_.List("")};
  }
  const std::string encoded = EncodeStateSnapshot(snapshot);
  absl::Status status = AtomicWriteFile(StateSnapshotPath(directory_), encoded);
  if (status.ok()) {
    snapshot_bytes_ = encoded.size();
    status = log_.Truncate(EncodeStateLogHeader().size());
  }
  if (status.ok()) {
    if (const absl::Status synced = log_.Sync(); !synced.ok()) static_cast<void>(Break(synced));
    return;
  }
  // The commit itself is safe in the log, which only grows until the next try.
  LogWarning("state_store", "cannot compact: ", status.message());
}

absl::Status FileStateStore::Break(const absl::Status& cause) {
  const absl::Status broken = absl::UnavailableError(
      absl::StrCat("the state store in ", directory_,
                   " writes no more, whether the last commit lasts is unknown until a restart: ",
                   cause.message()));
  LogError("state_store", broken.message());
  const MutexLock lock(mu_);
  broken_ = broken;
  return broken;
}

}  // namespace embla
