// The cluster's key as a shard server has it: from the file of --cluster-key, or from the file that
// the coordinator names, which nodes of the coordinator's host can read, or from the coordinator
// itself, over TLS.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/base/cluster_key.h"
#include "core/base/mutex.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class NodeKey {
 public:
  // `path` is that of --cluster-key; empty: the file that the coordinator names. With `key` no file
  // is read: for programs that run a cluster inside themselves.
  explicit NodeKey(std::string path = "", ClusterKeyPtr key = nullptr)
      : is_fixed_(key != nullptr),
        is_stated_(!path.empty()),
        path_(std::move(path)),
        key_(std::move(key)) {}

  // Called with each new key from now on, at once if there is one already; must not block.
  void OnChange(std::function<void(const ClusterKeyPtr&)> heard);

  // Reads the file again, so that a key that was changed is known at the next link. `offered` is
  // the path that the coordinator named. PermissionDenied names the path that was tried, and the
  // flag.
  absl::StatusOr<ClusterKeyPtr> Load(const std::string& offered);

  // Takes the key that the coordinator gave over TLS, unless --cluster-key names a file, and keeps
  // it in the file of KeepIn, for the next start. InvalidArgument: it is none.
  absl::StatusOr<ClusterKeyPtr> Take(const std::string& content);
  // Where a key that the coordinator gives is kept; empty: nowhere.
  void KeepIn(std::string path);

  // The newest key; null: none was found yet.
  ClusterKeyPtr current() const;
  // Its file; empty: none.
  std::string path() const;

 private:
  const bool is_fixed_;
  const bool is_stated_;

  mutable Mutex mu_;
  std::string path_ ABSL_GUARDED_BY(mu_);
  std::string kept_path_ ABSL_GUARDED_BY(mu_);
  ClusterKeyPtr key_ ABSL_GUARDED_BY(mu_);
  std::function<void(const ClusterKeyPtr&)> heard_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
