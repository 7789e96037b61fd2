// The embedded state store: one process, one directory, nothing to install.
//
// Files: `log` takes every commit; `snapshot` replaces the log's content when the log has grown;
// `begun` says that the other two were there; `LOCK` keeps a second process out. Format:
// docs/state_store_format.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/file.h"
#include "core/base/mutex.h"
#include "server/state_store/state_map.h"
#include "server/state_store/state_store.h"
#include "server/state_store/watch_hub.h"

namespace embla {

struct FileStateStoreOptions {
  // The log is compacted when it is larger than this and than the snapshot.
  std::uint64_t log_bytes_max = std::uint64_t{4} << 20;
  // Hears how long each sync of the log took, on the thread that commits. May be null.
  std::function<void(absl::Duration)> on_synced = {};
};

// Lock order: mu_, then the hub's. No lock is held over a file: a commit takes the writer's turn.
class FileStateStore final : public StateStore {
 public:
  // Creates `directory` where it is missing, recovers what it holds; a commit that a crash cut
  // short was never acknowledged and is dropped. Errors:
  //   FailedPrecondition  another process has it open
  //   DataLoss            corruption: names the file and the offset; nothing is changed
  static absl::StatusOr<std::unique_ptr<FileStateStore>> Open(
      const std::string& directory, const FileStateStoreOptions& options = {});

  absl::StatusOr<StateEntry> Get(std::string_view key) const override;
  absl::StatusOr<std::vector<StateEntry>> List(std::string_view prefix) const override;
  absl::StatusOr<Revision> Commit(std::span<const StateCompare> compares,
                                  std::span<const StateWrite> writes) override;
  void BeginBatch() override;
  absl::Status EndBatch() override;
  std::unique_ptr<StateWatch> Watch(std::string_view prefix) override;
  Revision revision() const override;

 private:
  struct Recovered;
  static absl::StatusOr<Recovered> Recover(const std::string& directory);
  FileStateStore(std::string directory, const FileStateStoreOptions& options, FileLock lock,
                 Recovered recovered);

  // Each waits for the writer's turn and takes it; every taker passes it on.
  void TakeTurn() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status TakeTurn(std::span<const StateCompare> compares, std::string* frame,
                        std::span<const StateWrite> writes) ABSL_LOCKS_EXCLUDED(mu_);
  void PassTurn() ABSL_LOCKS_EXCLUDED(mu_);
  // The next ones are for the thread whose turn it is.
  absl::Status WriteFrame(const std::string& frame) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status SyncLog() ABSL_LOCKS_EXCLUDED(mu_);
  void CompactIfLarge() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Break(const absl::Status& cause) ABSL_LOCKS_EXCLUDED(mu_);

  const std::string directory_;
  const FileStateStoreOptions options_;
  const FileLock lock_;

  // Used by the thread whose turn it is.
  AppendFile log_;
  bool is_batch_ = false;  // Between BeginBatch and EndBatch.
  bool is_synced_ = true;  // Nothing was appended since the last sync.
  std::uint64_t snapshot_bytes_;

  mutable Mutex mu_;
  CondVar turn_over_;
  bool turn_taken_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status broken_ ABSL_GUARDED_BY(mu_);  // Not OK: no commit any more.
  StateMap map_ ABSL_GUARDED_BY(mu_);
  WatchHub hub_;
};

}  // namespace embla
