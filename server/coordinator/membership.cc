#include "server/coordinator/membership.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace embla {

absl::Status NodeRegistration::Validate() const {
  if (boot_id == 0) return absl::InvalidArgumentError("node boot_id is 0");
  const std::string& directory = past.directory_id;
  if (!directory.empty() &&
      (directory.size() != 32 ||
       directory.find_first_not_of("0123456789abcdef") != std::string::npos)) {
    return absl::InvalidArgumentError("directory_id is not 32 hexadecimal digits");
  }
  // The id is given later; any but 0 stands for it here.
  return ValidateNode({.id = NodeId{1}, .name = name, .address = address, .devices = devices});
}

Membership::Membership(const std::vector<NodeSpec>& nodes, absl::Duration dead_after,
                       absl::Time now)
    : dead_after_(dead_after) {
  for (const NodeSpec& node : nodes) Expect(node, now);
}

void Membership::Expect(const NodeSpec& node, absl::Time now) {
  Member& member = members_[node.id];
  member.view.spec = node;
  member.view.state = NodeState::kUnlinked;
  member.view.last_heartbeat = absl::InfinitePast();
  member.heard = now;
}

absl::Status Membership::CheckProcess(NodeId node, std::uint64_t boot_id,
                                      const std::string& address) const {
  const NodeView* const view = Find(node);
  if (view == nullptr || !view->live()) return absl::OkStatus();
  // A process has one address in its life: whoever comes with another one only says to be it.
  if (view->boot_id == boot_id && view->spec.address == address) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("another live process has the node name ",
                                               view->spec.name, ", at ", view->spec.address));
}

void Membership::Link(const NodeSpec& spec, const NodeRegistration& registration, absl::Time now) {
  Member& member = members_[spec.id];
  // A new process has nothing yet.
  if (member.view.boot_id != registration.boot_id) member.view = {};
  member.view.spec = spec;
  member.view.host_memory = registration.host_memory;
  member.view.build = registration.build;
  member.view.state = NodeState::kLive;
  member.view.boot_id = registration.boot_id;
  member.view.last_heartbeat = now;
  member.heard = now;
}

std::string NodeView::stopped() const {
  for (std::size_t d = 0; d < device_stopped.size(); ++d) {
    if (!device_stopped[d].empty()) return absl::StrCat("device ", d, ": ", device_stopped[d]);
  }
  return "";
}

absl::Status Membership::Heartbeat(NodeId node, std::uint64_t boot_id, const HeartbeatInfo& info,
                                   absl::Time now) {
  const auto it = members_.find(node);
  if (it == members_.end() || it->second.view.boot_id != boot_id) {
    return absl::NotFoundError(
        absl::StrCat("node ", ToInt(node), " is not registered by this process; register again"));
  }
  NodeView& view = it->second.view;
  view.state = NodeState::kLive;
  view.plan_version = info.plan_version;
  if (view.failed_plan_version == PlanVersion{}) view.failing_since = now;
  view.failed_plan_version = info.failed_plan_version;
  view.failure = info.failure;
  view.device_used_bytes = info.device_used_bytes;
  view.load = info.load;
  view.log_level = info.log_level;
  view.device_stopped = info.device_stopped;
  view.sessions_heard = info.sessions_heard;
  view.clock_ahead = info.clock_ahead;
  view.steps = info.steps;
  std::ranges::sort(view.steps, {}, &StepReport::table);
  view.last_heartbeat = now;
  it->second.heard = now;
  return absl::OkStatus();
}

void Membership::Unlink(NodeId node, std::uint64_t boot_id) {
  const auto it = members_.find(node);
  if (it == members_.end() || it->second.view.boot_id != boot_id) return;
  if (it->second.view.live()) it->second.view.state = NodeState::kUnlinked;
}

std::vector<NodeId> Membership::Tick(absl::Time now) {
  std::vector<NodeId> died;
  for (auto& [id, member] : members_) {
    if (member.view.state == NodeState::kDead || now - member.heard < dead_after_) continue;
    member.view.state = NodeState::kDead;
    died.push_back(id);
  }
  return died;
}

const NodeView* Membership::Find(NodeId node) const {
  const auto it = members_.find(node);
  return it == members_.end() ? nullptr : &it->second.view;
}

std::vector<NodeView> Membership::Views() const {
  std::vector<NodeView> views;
  for (const auto& [id, member] : members_) views.push_back(member.view);
  return views;
}

std::int64_t Membership::PromisedBytes(const HostMemory& memory) const {
  std::int64_t bytes = 0;
  for (const auto& [id, member] : members_) {
    const NodeView& view = member.view;
    if (!view.live() || memory.id.empty() || view.host_memory.id != memory.id) continue;
    for (const DeviceSpec& device : view.spec.devices) {
      if (device.kind != DeviceKind::kCpu) continue;
      bytes += std::min(device.memory_bytes, std::numeric_limits<std::int64_t>::max() - bytes);
    }
  }
  return bytes;
}

std::uint32_t Membership::live_count() const {
  std::uint32_t count = 0;
  for (const auto& [id, member] : members_) count += member.view.live() ? 1 : 0;
  return count;
}

}  // namespace embla
