// Evicted rows of a ZCH table from all nodes that hold a part of it, a thread for each.
#pragma once

#include <map>

#include "absl/status/status.h"
#include "client/include/embla/client.h"
#include "client/node_directory.h"
#include "client/plan_keeper.h"
#include "core/base/mutex.h"
#include "core/plan/table_spec.h"

namespace embla::client {

class EvictionReader {
 public:
  // Borrows its arguments; they outlive this object.
  EvictionReader(const TableSpec& spec, PlanKeeper& plans, NodeDirectory& nodes,
                 const Client::EvictionSink& sink)
      : spec_(spec), plans_(plans), nodes_(nodes), sink_(sink) {}

  // Reads the evictions that the nodes keep now, by `deadline`. Returns the first error of a node
  // or of the sink.
  absl::Status ReadKept(absl::Time deadline);
  // Also what is to come, from nodes that get a part of the table later, too, until the sink
  // returns an error. NotFound: the table is gone.
  absl::Status Follow();

 private:
  absl::Status ReadNode(NodeId node, bool follow, absl::Time deadline);
  absl::Status Take(const NodeChannel::Evictions& evictions);
  // Reads the node until everything is over.
  void FollowNode(NodeId node);
  void End(const absl::Status& status);
  bool ended() {
    MutexLock lock(mu_);
    return ended_;
  }

  const TableSpec spec_;
  PlanKeeper& plans_;
  NodeDirectory& nodes_;
  const Client::EvictionSink& sink_;

  Mutex sink_mu_;  // One call of the sink at a time; before mu_.
  Mutex mu_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status result_ ABSL_GUARDED_BY(mu_);
  std::map<NodeId, NodeChannel::EvictionsPosition> positions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla::client
