#include "client/node_directory.h"

#include <algorithm>
#include <iterator>

#include "client/route/table_route.h"

namespace embla::client {
namespace {

constexpr absl::Duration kAvoidFor = absl::Seconds(1);

}  // namespace

void NodeDirectory::Install(const Plan& plan) {
  std::vector<Channel> to_close, unused;
  {
    MutexLock lock(mu_);
    if (plan.version() < version_ || is_over_) return;
    version_ = plan.version();
    // Find gives none of them out, so who holds one alone keeps it alone.
    const auto first_unused =
        std::partition(closed_.begin(), closed_.end(),
                       [](const Channel& channel) { return channel.lent.use_count() > 1; });
    unused.assign(std::make_move_iterator(first_unused), std::make_move_iterator(closed_.end()));
    closed_.erase(first_unused, closed_.end());
    for (auto it = nodes_.begin(); it != nodes_.end();) {
      const auto entry = it++;
      const NodeSpec* spec = plan.FindNode(NodeId{entry->first});
      if (spec != nullptr && spec->address == entry->second.address) continue;
      to_close.push_back(std::move(entry->second.channel));
      nodes_.erase(entry);
    }
    for (const NodeSpec& spec : plan.nodes()) {
      if (nodes_.contains(ToInt(spec.id))) continue;
      nodes_.emplace(ToInt(spec.id), Node{spec.address, Channel(make_channel_(spec))});
    }
  }
  for (const Channel& channel : to_close) channel.owned->Close();
  MutexLock lock(mu_);
  for (Channel& channel : to_close) closed_.push_back(std::move(channel));
}

void NodeDirectory::CloseAll() {
  std::vector<Channel> channels;
  {
    MutexLock lock(mu_);
    is_over_ = true;
    for (auto& [id, node] : nodes_) channels.push_back(std::move(node.channel));
    nodes_.clear();
  }
  for (const Channel& channel : channels) channel.owned->Close();
  MutexLock lock(mu_);
  for (Channel& channel : channels) closed_.push_back(std::move(channel));
}

std::size_t NodeDirectory::closed_count() {
  MutexLock lock(mu_);
  return closed_.size();
}

std::shared_ptr<NodeChannel> NodeDirectory::Find(NodeId node) {
  MutexLock lock(mu_);
  const auto found = nodes_.find(ToInt(node));
  return found == nodes_.end() ? nullptr : found->second.channel.lent;
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
