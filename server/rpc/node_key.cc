#include "server/rpc/node_key.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/log.h"
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

absl::StatusOr<ClusterKeyPtr> NodeKey::Take(const std::string& content) {
  if (is_fixed_ || is_stated_) return Load("");
  absl::StatusOr<ClusterKey> parsed = ClusterKey::Parse(content);
  if (!parsed.ok()) return Annotate(parsed.status(), "the coordinator's key");
  MutexLock lock(mu_);
  key_ = std::make_shared<const ClusterKey>(*std::move(parsed));
  if (!kept_path_.empty()) {
    const absl::Status kept = AtomicWriteFile(kept_path_, content);
    if (kept.ok()) path_ = kept_path_;
    if (!kept.ok()) LogWarning("shard", "the cluster's key is not kept reason=", Message(kept));
  }
  if (heard_) heard_(key_);
  return key_;
}

void NodeKey::KeepIn(std::string path) {
  MutexLock lock(mu_);
  kept_path_ = std::move(path);
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
