#include "server/state_store/state_directory.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/ids.h"
#include "core/base/status_macros.h"
#include "server/state_store/state_format.h"

namespace embla {
namespace {

namespace fs = std::filesystem;

// A store that compacts while its files are read makes them read again. It does so every few MiB.
constexpr int kReadsMax = 8;

constexpr std::string_view kBegun =
    "A state store of Embla was begun here: without its files `snapshot` and `log` it is "
    "damaged.\n";

std::string BegunPath(const std::string& directory) { return directory + "/begun"; }
std::string KeyPath(const std::string& directory) { return directory + "/cluster.key"; }

absl::Status Missing(const std::string& path) {
  return absl::DataLossError(
      absl::StrCat(path,
                   " is missing, at offset 0; restore the directory from a backup, or remove "
                   "it to begin a new cluster (docs/runbook.md)"));
}

// Brings `map` from its snapshot's revision to the log's last; frames that the snapshot already
// holds are left by a crash between compacting and cutting the log.
absl::Status Replay(const StateLogContent& log, const std::string& path, StateMap* map) {
  for (const StateFrame& frame : log.frames) {
    if (frame.revision <= map->revision()) continue;
    if (frame.revision != map->next_revision()) {
      return absl::DataLossError(absl::StrCat(path, " is corrupt before offset ", log.valid_bytes,
                                              ": revision ", ToInt(frame.revision), " follows ",
                                              ToInt(map->revision())));
    }
    map->Apply(frame.writes);
  }
  return absl::OkStatus();
}

// Corruption that goes away when the files are read again was a store at work.
absl::StatusOr<StateFiles> ReadBesideAStore(const std::string& directory) {
  absl::StatusOr<StateFiles> files = ReadStateFiles(directory);
  for (int reads = 1; absl::IsDataLoss(files.status()) && reads < kReadsMax; ++reads) {
    files = ReadStateFiles(directory);
  }
  return files;
}

// A path that cannot be examined counts as existing: opening it gives the reason.
bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error) || error;
}

// Without slashes at its end.
std::string WholePath(const std::string& directory) {
  return fs::path(absl::StrCat(directory, "/")).parent_path().string();
}

absl::Status CheckIsFree(const std::string& directory) {
  std::error_code error;
  if (!Exists(directory) ||
      (fs::is_directory(directory, error) && fs::is_empty(directory, error))) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(directory, " is there and not an empty directory; name another, or remove it"));
}

absl::Status WriteFiles(const StateSnapshot& snapshot, const std::string& key,
                        const std::string& directory) {
  EMBLA_RETURN_IF_ERROR(MakeDirectories(directory));
  if (!key.empty()) EMBLA_RETURN_IF_ERROR(AtomicWriteFile(KeyPath(directory), key));
  EMBLA_RETURN_IF_ERROR(
      AtomicWriteFile(StateSnapshotPath(directory), EncodeStateSnapshot(snapshot)));
  EMBLA_RETURN_IF_ERROR(AtomicWriteFile(StateLogPath(directory), EncodeStateLogHeader()));
  return MarkStateDirectoryBegun(directory);
}

}  // namespace

std::string StateLogPath(const std::string& directory) { return directory + "/log"; }
std::string StateSnapshotPath(const std::string& directory) { return directory + "/snapshot"; }

absl::Status BeginStateDirectory(const std::string& directory) {
  const std::string log_path = StateLogPath(directory);
  const std::string snapshot_path = StateSnapshotPath(directory);
  const bool has_log = Exists(log_path);
  const bool is_begun = Exists(BegunPath(directory));
  // The snapshot is created first, then the log, then the word that both were there: what is
  // missing before another is a loss, not a new store.
  if (!Exists(snapshot_path)) {
    if (has_log || is_begun) return Missing(snapshot_path);
    EMBLA_RETURN_IF_ERROR(AtomicWriteFile(snapshot_path, EncodeStateSnapshot({})));
  }
  if (has_log) return absl::OkStatus();
  if (is_begun) return Missing(log_path);
  EMBLA_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(snapshot_path));
  EMBLA_ASSIGN_OR_RETURN(const StateSnapshot snapshot, DecodeStateSnapshot(bytes, snapshot_path));
  if (snapshot.revision != Revision{}) return Missing(log_path);
  return AtomicWriteFile(log_path, EncodeStateLogHeader());
}

absl::Status MarkStateDirectoryBegun(const std::string& directory) {
  if (Exists(BegunPath(directory))) return absl::OkStatus();
  return AtomicWriteFile(BegunPath(directory), kBegun);
}

absl::StatusOr<StateFiles> ReadStateFiles(const std::string& directory) {
  const std::string log_path = StateLogPath(directory);
  const std::string snapshot_path = StateSnapshotPath(directory);
  // The log first: a snapshot that replaces it meanwhile has everything that was in it.
  EMBLA_ASSIGN_OR_RETURN(const std::string log, ReadFile(log_path));
  EMBLA_ASSIGN_OR_RETURN(const std::string snapshot, ReadFile(snapshot_path));
  EMBLA_ASSIGN_OR_RETURN(StateSnapshot base, DecodeStateSnapshot(snapshot, snapshot_path));
  EMBLA_ASSIGN_OR_RETURN(const StateLogContent content, DecodeStateLog(log, log_path));
  StateFiles files{.map = StateMap(base.revision, std::move(base.entries)),
                   .snapshot_bytes = snapshot.size(),
                   .log_bytes = content.valid_bytes,
                   .log_torn_bytes = log.size() - content.valid_bytes};
  EMBLA_RETURN_IF_ERROR(Replay(content, log_path, &files.map));
  return files;
}

absl::Status WriteStateDirectory(const StateSnapshot& snapshot, const std::string& key,
                                 const std::string& to) {
  const std::string whole = WholePath(to);
  const std::string partial = absl::StrCat(whole, ".partial");
  EMBLA_RETURN_IF_ERROR(CheckIsFree(whole));
  EMBLA_RETURN_IF_ERROR(CheckIsFree(partial));
  EMBLA_RETURN_IF_ERROR(WriteFiles(snapshot, key, partial));
  return RenameDurably(partial, whole);
}

absl::StatusOr<StateCopy> CopyStateDirectory(const std::string& from, const std::string& to) {
  EMBLA_RETURN_IF_ERROR(CheckIsFree(WholePath(to)));
  const absl::StatusOr<StateFiles> files = ReadBesideAStore(from);
  if (absl::IsNotFound(files.status())) {
    return absl::NotFoundError(absl::StrCat(
        from, " is not the state directory of a coordinator: ", files.status().message()));
  }
  EMBLA_RETURN_IF_ERROR(files.status());
  absl::StatusOr<std::string> key = ReadFile(KeyPath(from));
  if (absl::IsNotFound(key.status())) key = "";
  EMBLA_RETURN_IF_ERROR(key.status());
  const StateSnapshot snapshot{files->map.revision(), files->map.List("")};
  EMBLA_RETURN_IF_ERROR(WriteStateDirectory(snapshot, *key, to));
  return StateCopy{.revision = snapshot.revision,
                   .keys = snapshot.entries.size(),
                   .has_cluster_key = !key->empty()};
}

}  // namespace embla
