// Tiles one table for the sharding type its user named, balancing bytes over devices.
// Pure and deterministic: the same input gives the same plan, whatever the order of nodes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/given_up.h"
#include "core/plan/plan.h"

namespace embla {

// A user's wishes beside the table itself. Empty lists mean "no constraint".
struct PlacementRequest {
  ShardingType sharding = ShardingType::kTableWise;
  // The planner chooses `sharding`: see core/planner/cluster/auto_placement.h. PlaceTable needs a
  // type.
  bool automatic = false;
  std::vector<std::string> nodes{};      // Allowed nodes, by name.
  std::vector<std::uint32_t> devices{};  // Allowed device indices within each node.
  // Narrowest column block of column_wise, table_column_wise and grid_shard (other types ignore
  // it); see ColumnBlockWidth. 0: TorchRec's 128.
  std::uint32_t min_partition = 0;
  // Exactly where, instead of by bytes; one name per column block, in the order of columns: the
  // device ("n0:1") of table_wise, column_wise and table_column_wise, the node of table_row_wise
  // and grid_shard. Other types have none.
  std::vector<std::string> targets{};

  bool operator==(const PlacementRequest&) const = default;
};

// Bytes of weights and state that tables put on each device. Replicas count everywhere.
class DeviceLoads {
 public:
  DeviceLoads() = default;
  DeviceLoads(const TableList& tables);  // NOLINT(google-explicit-constructor): the same fact.
  void Add(const TablePlan& table);
  // Pairs of device and bytes, by device.
  auto begin() const { return bytes_.begin(); }
  auto end() const { return bytes_.end(); }
  std::int64_t Of(DeviceId device) const;

 private:
  std::map<DeviceId, std::int64_t> bytes_;
};

// Width of every column block: the smallest divisor of dim that is at least min_partition and cuts
// on column granules, else dim. With granules of 4 columns this is TorchRec's rule.
// Requires: granules set.
std::uint32_t ColumnBlockWidth(const TableSpec& spec, std::uint32_t min_partition);

// A table with replica groups gets one tiling per group, on that group's devices of every node.
//
// A device's free memory is its size less what `loads` already puts there.
// Errors: InvalidArgument (unknown node, no such device, a cut the type does not allow, an
// optimizer that needs whole rows under a column cut across nodes with L2 decay, devices that
// replica groups cannot share evenly),
// ResourceExhausted (a slice does not fit: names the device, bytes needed and free), Cancelled (was
// given up).
absl::StatusOr<TablePlan> PlaceTable(const TableSpec& spec, const PlacementRequest& request,
                                     const std::vector<NodeSpec>& nodes, const DeviceLoads& loads,
                                     const GivenUp& given_up = nullptr);

}  // namespace embla
