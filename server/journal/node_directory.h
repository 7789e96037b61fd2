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
  // Where the directory was when its node was let serve last: device, inode and birth time of its
  // lock's file, which copies do not keep. Empty: not known.
  std::string place = {};
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
  // Whether the directory was copied to where it is, as far as its place tells. One that is copied
  // over its own files, or with its whole file system, is not found out.
  bool was_copied() const { return was_copied_; }
  // The node is registered. Durable when this returns; no write, if nothing is new.
  absl::Status NoteRegistered(const NodeIdentity& seen);
  // A plan is installed, whose tables have at most the id `table`. Likewise.
  absl::Status NotePlan(PlanVersion version, TableId table);
  // The node may serve from this directory.
  absl::Status NotePlace();
  // InvalidArgument: it has a line break, or is too long.
  absl::Status NoteTestimony(const std::string& testimony);

 private:
  NodeDirectory(std::string path, std::string place, NodeIdentity identity)
      : path_(std::move(path)),
        place_(std::move(place)),
        was_copied_(!identity.place.empty() && identity.place != place_),
        identity_(std::move(identity)) {}
  absl::Status Write(const NodeIdentity& identity) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);

  const std::string path_;
  const std::string place_;
  const bool was_copied_;
  // Held while the file is written: only other writers wait for it.
  Mutex write_mu_;
  mutable Mutex mu_;
  NodeIdentity identity_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
