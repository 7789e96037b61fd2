// The files of a state directory: how they are begun, read and copied. docs/state_store_format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/state_store/state_format.h"
#include "server/state_store/state_map.h"

namespace embla {

struct StateFiles {
  StateMap map;
  std::uint64_t snapshot_bytes = 0;
  std::uint64_t log_bytes = 0;       // Bytes of whole commits.
  std::uint64_t log_torn_bytes = 0;  // Bytes after them: a commit that was never acknowledged.
};

std::string StateLogPath(const std::string& directory);
std::string StateSnapshotPath(const std::string& directory);

// Writes what an empty `directory` lacks to be a store without keys. DataLoss: a file is missing
// where a store was begun; nothing is written then.
absl::Status BeginStateDirectory(const std::string& directory);
// Notes that the directory's files are there: from now on a missing one is a loss.
absl::Status MarkStateDirectoryBegun(const std::string& directory);

// The state after the last commit. NotFound: a file is missing; DataLoss: corruption, with the file
// and the offset.
absl::StatusOr<StateFiles> ReadStateFiles(const std::string& directory);

struct StateCopy {
  Revision revision{};
  std::size_t keys = 0;
  bool has_cluster_key = false;
};

// Copies a state directory, and the cluster's key with it, to `to`, which must be missing or empty.
// Works beside a store that has `from` open: the copy is the state after one of its commits, not
// older than the last one that was acknowledged before the call. `to` is there as a whole or not at
// all, also after a crash; `to`.partial is used on the way. Errors:
//   NotFound            `from` has no state
//   FailedPrecondition  `to` is not empty
//   DataLoss            `from` is damaged: the file and the offset
// and those of files.
absl::StatusOr<StateCopy> CopyStateDirectory(const std::string& from, const std::string& to);

// Makes the state directory `to` of `snapshot`; `key`: the content of the cluster's key file,
// empty: there is none. All or nothing, and errors of `to`, as above.
absl::Status WriteStateDirectory(const StateSnapshot& snapshot, const std::string& key,
                                 const std::string& to);

}  // namespace embla
