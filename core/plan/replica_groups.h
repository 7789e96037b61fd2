// Replica groups: 2D parallelism. A table with R groups has R whole copies, cut alike. The devices
// of every node fall into R groups of equal size, by index: with D devices, device d belongs to
// group d / (D/R) and is at position d % (D/R) in it. The copies of a slice are on one node, at one
// position of each group, so that averaging them never leaves the node.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/plan/plan.h"

namespace embla {

// Devices of one group on a node of `devices` devices. InvalidArgument, naming the node, unless
// they can be divided.
absl::StatusOr<std::uint32_t> DevicesPerGroup(const std::string& node_name, std::size_t devices,
                                              std::uint32_t groups);

// Returns the device in `group` that corresponds to `device` of group 0. Requires: DevicesPerGroup
// is OK.
inline std::uint32_t DeviceOfGroup(std::uint32_t device, std::uint32_t group,
                                   std::uint32_t devices_per_group) {
  return device + group * devices_per_group;
}

// Checks that there are as many tilings as groups, and that the sharding type can have groups.
// Tables without are OK.
absl::Status CheckGroupCount(const TablePlan& table);

// The copies are cut alike and each is on its group's devices, at the same positions. Tables
// without groups are OK. Requires: CheckGroupCount is OK, every device is known.
absl::Status CheckGroupsMatch(const TablePlan& table, const std::vector<NodeSpec>& nodes);

// The group of `table` that a session with this number trains: sessions take turns.
inline std::uint32_t GroupOfSession(const TableSpec& table, std::uint64_t number) {
  return static_cast<std::uint32_t>(number % table.replica_groups);
}

// InvalidArgument unless `table` has a group `group`. Tables without groups have group 0 only.
absl::Status CheckGroup(const TableSpec& table, std::uint32_t group);

}  // namespace embla
