// The identity of a data directory: its node, and the newest that its node has seen of the
// coordinator's store: the file `identity` of the directory. docs/node_directory.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/base/mutex.h"

namespace embla {

struct NodeIdentity {
  std::string directory_id = {};  // 32 hexadecimal digits, random, made with the directory.
  std::string node = {};          // The node's name.
  std::string cluster_id = {};    // Empty, like all below: never registered.
  NodeId node_id{};
  std::string key_path = {};  // Path where the cluster's key was found.
  // Generation of the coordinator's store; the highest seen, as all below.
  std::uint64_t generation = 0;
  std::uint64_t store_revision = 0;
  PlanVersion plan_version{};
  TableId table{};
  // A line that only the coordinator reads: it is told so when the node registers again.
  std::string testimony = {};
  bool operator==(const NodeIdentity&) const = default;
};

// The content of the file.
std::string FormatIdentity(const NodeIdentity& identity);
// DataLoss: damaged. FailedPrecondition: of a newer program.
absl::StatusOr<NodeIdentity> ParseIdentity(std::string_view content);

// Thread safety: every method may be called from any thread.
class NodeDirectory {
 public:
  // Reads the identity of `directory`, which has to be locked; an empty one is given a new
  // identity. FailedPrecondition: another node's. DataLoss: damaged, or missing beside a log.
  static absl::StatusOr<std::unique_ptr<NodeDirectory>> Open(const std::string& directory,
                                                             const std::string& node);

  NodeIdentity identity() const;
  // The node is registered. Durable when this returns; no write, if nothing is new.
  absl::Status NoteRegistered(const NodeIdentity& seen);
  // A plan is installed, whose tables have at most the id `table`. Likewise.
  absl::Status NotePlan(PlanVersion version, TableId table);
  // InvalidArgument: it has a line break, or is too long.
  absl::Status NoteTestimony(const std::string& testimony);

 private:
  NodeDirectory(std::string path, NodeIdentity identity)
      : path_(std::move(path)), identity_(std::move(identity)) {}
  absl::Status Write(const NodeIdentity& identity) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);

  const std::string path_;
  // Held while the file is written: only other writers wait for it.
  Mutex write_mu_;
  mutable Mutex mu_;
  NodeIdentity identity_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
