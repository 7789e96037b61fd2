// Test support: plans and facts for the console.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/plan.h"
#include "server/console/console_json.h"

namespace embla {

inline NodeSpec ConsoleNode(std::uint32_t id) {
  return {.id = NodeId{id},
          .name = "n" + std::to_string(id),
          .address = "10.0.0.1:7000",
          .devices = std::vector<DeviceSpec>(2, {DeviceKind::kCpu, 1 << 20})};
}

// `rows` x 8 columns of fp32, stepped by SGD: 32 bytes a row; one slice for each of `cuts` row
// blocks, in turn on the devices of nodes 1 and 2.
inline TablePlan RowBlocks(std::uint32_t id, std::string name, std::int64_t rows,
                           std::int64_t cuts) {
  TablePlan table;
  table.spec.id = TableId{id};
  table.spec.name = std::move(name);
  table.spec.rows = rows;
  table.spec.dim = 8;
  table.spec.optimizer.kind = OptimizerKind::kSgd;
  table.spec.SetDefaults();
  table.sharding = ShardingType::kRowWise;
  std::vector<Slice>& slices = table.replicas.emplace_back();
  for (std::int64_t i = 0; i < cuts; ++i) {
    slices.push_back({.row_begin = rows * i / cuts,
                      .row_end = rows * (i + 1) / cuts,
                      .column_begin = 0,
                      .column_end = 8,
                      .device = {NodeId{static_cast<std::uint32_t>(1 + i / 2 % 2)},
                                 static_cast<std::uint32_t>(i % 2)}});
  }
  return table;
}

inline PlanPtr ConsolePlan(std::vector<TablePlan> tables) {
  return std::make_shared<const Plan>(PlanVersion{7}, "cluster",
                                      std::vector<NodeSpec>{ConsoleNode(1), ConsoleNode(2)},
                                      TableList(std::move(tables)));
}

}  // namespace embla
