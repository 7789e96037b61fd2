// A node that has all of a table and on which nothing moves: what a training comes to.
#pragma once

#include <memory>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/check.h"
#include "core/planner/placement.h"
#include "server/shard/shard_node.h"

namespace embla::testing {

// `pool` is not owned and outlives the node.
inline std::unique_ptr<ShardNode> MakeLoneNode(const TableSpec& spec, const NodeSpec& node,
                                               BufferPool& pool) {
  ShardNodeOptions options;
  options.name = node.name;
  options.devices = node.devices;
  std::unique_ptr<ShardNode> made = *ShardNode::Create(options, pool);
  const absl::StatusOr<TablePlan> table =
      PlaceTable(spec, {.sharding = ShardingType::kTableWise}, {node}, {});
  EMBLA_CHECK(table.ok());
  const auto plan =
      std::make_shared<const Plan>(PlanVersion{1}, "test", std::vector{node}, std::vector{*table});
  EMBLA_CHECK(made->InstallPlan(plan, node.id).ok());
  return made;
}

}  // namespace embla::testing
