#include "client/node_directory.h"

#include "client/route/table_route.h"

namespace embla::client {
namespace {

constexpr absl::Duration kAvoidFor = absl::Seconds(1);

}  // namespace

void NodeDirectory::Install(const Plan& plan) {
  std::vector<NodeChannel*> to_close;
  {
    MutexLock lock(mu_);
    if (plan.version() < version_) return;
    version_ = plan.version();
    for (auto it = nodes_.begin(); it != nodes_.end();) {
      const auto entry = it++;
      const NodeSpec* spec = plan.FindNode(NodeId{entry->first});
      if (spec != nullptr && spec->address == entry->second.address) continue;
      to_close.push_back(entry->second.channel.get());
      closed_.push_back(std::move(entry->second.channel));
      nodes_.erase(entry);
    }
    for (const NodeSpec& spec : plan.nodes()) {
      Node& node = nodes_[ToInt(spec.id)];
      if (node.channel != nullptr) continue;
      node.address = spec.address;
      node.channel = make_channel_(spec.address);
    }
  }
  for (NodeChannel* channel : to_close) channel->Close();
}

NodeChannel* NodeDirectory::Find(NodeId node) {
  MutexLock lock(mu_);
  const auto found = nodes_.find(ToInt(node));
  return found == nodes_.end() ? nullptr : found->second.channel.get();
}

void NodeDirectory::NoteFailure(NodeId node, absl::Time now) {
  MutexLock lock(mu_);
  failed_ = node;
  failed_until_ = now + kAvoidFor;
}

NodeId NodeDirectory::NodeToAvoid(absl::Time now) {
  MutexLock lock(mu_);
  return now < failed_until_ ? failed_ : kNoNode;
}

}  // namespace embla::client
