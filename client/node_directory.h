// The channels to the nodes of the current plan.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "client/transport/node_channel.h"
#include "core/base/ids.h"
#include "core/base/mutex.h"
#include "core/plan/plan.h"

namespace embla::client {

// Thread safety: every method may be called from any thread.
class NodeDirectory {
 public:
  using MakeChannel = std::function<std::unique_ptr<NodeChannel>(const NodeSpec& node)>;

  explicit NodeDirectory(MakeChannel make_channel) : make_channel_(std::move(make_channel)) {}

  // Opens channels to new nodes and closes those of nodes that are gone or have moved. Plans older
  // than the newest one given are ignored.
  void Install(const Plan& plan);

  // Null when the plan has no such node. The caller holds the pointer until all its requests are
  // answered; a closed channel is deleted with a later plan, once no caller holds it. With the
  // directory they all are, which waits for the answers but not for the pointers.
  std::shared_ptr<NodeChannel> Find(NodeId node);
  // Closes all channels, for good: nodes of later plans are not found.
  void CloseAll();
  // Closed channels that callers may still hold.
  std::size_t closed_count();

  // Lookups of replicated tables stay away from a node for a second after it failed.
  void NoteFailure(NodeId node, absl::Time now);
  // The node to avoid now, or kNoNode.
  NodeId NodeToAvoid(absl::Time now);

 private:
  // A channel's destructor waits for the channel's threads, so none of them may run it: those that
  // hold `lent`, which owns nothing, only keep the directory from deleting the channel.
  struct Channel {
    explicit Channel(std::unique_ptr<NodeChannel> made)
        : owned(std::move(made)), lent(owned.get(), [](NodeChannel*) {}) {}

    std::unique_ptr<NodeChannel> owned;
    std::shared_ptr<NodeChannel> lent;
  };
  struct Node {
    std::string address;
    Channel channel;
  };

  const MakeChannel make_channel_;

  Mutex mu_;
  PlanVersion version_ ABSL_GUARDED_BY(mu_){};
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_map<std::uint32_t, Node> nodes_ ABSL_GUARDED_BY(mu_);
  std::vector<Channel> closed_ ABSL_GUARDED_BY(mu_);
  NodeId failed_ ABSL_GUARDED_BY(mu_){};
  absl::Time failed_until_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace embla::client
