#include "server/rpc/node_key.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/text.h"

namespace embla {

void NodeKey::OnChange(std::function<void(const ClusterKeyPtr&)> heard) {
  MutexLock lock(mu_);
  heard_ = std::move(heard);
  if (key_ != nullptr && heard_) heard_(key_);
}

absl::StatusOr<ClusterKeyPtr> NodeKey::Load(const std::string& offered) {
  MutexLock lock(mu_);
  if (is_fixed_) return key_;
  const std::string& path = is_stated_ ? path_ : offered;
  if (path.empty()) {
    return absl::PermissionDeniedError(
        "this node has no cluster key, and the coordinator names no file: give --cluster-key FILE");
  }
  absl::StatusOr<ClusterKey> read = ReadClusterKey(path);
  if (!read.ok()) {
    return absl::PermissionDeniedError(absl::StrCat(
        "this node has no cluster key: ", ToAbsl(Message(read.status())),
        is_stated_ ? " (--cluster-key)"
                   : ". That is the coordinator's file, tried for want of a flag: copy it to this "
                     "host and give --cluster-key FILE"));
  }
  path_ = path;
  key_ = std::make_shared<const ClusterKey>(*std::move(read));
  if (heard_) heard_(key_);
  return key_;
}

ClusterKeyPtr NodeKey::current() const {
  MutexLock lock(mu_);
  return key_;
}

std::string NodeKey::path() const {
  MutexLock lock(mu_);
  return path_;
}

}  // namespace embla
