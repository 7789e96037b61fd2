// Inputs for the solver's tests: the scenarios of EMBLA_DATA_DIR/planner_inputs, and drawn ones.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "core/plan/names.h"
#include "core/planner/problem/problem.h"
#include "nlohmann/json.hpp"

namespace embla::planner {

inline constexpr std::int64_t kScenarioDeviceBytes = 29'205'777'612;

inline std::optional<std::string> InputFolder() {
  const char* data = std::getenv("EMBLA_DATA_DIR");
  if (data == nullptr) return std::nullopt;
  return std::string(data) + "/planner_inputs/";
}

// Columns name, rows, dim, pooling.
inline std::vector<Table> ReadTables(const std::string& path) {
  std::ifstream in(path);
  std::vector<Table> tables;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::istringstream cells(line);
    Table table;
    std::string cell;
    std::getline(cells, table.name, ',');
    std::getline(cells, cell, ',');
    table.rows = std::stoll(cell);
    std::getline(cells, cell, ',');
    table.dim = static_cast<std::uint32_t>(std::stoul(cell));
    std::getline(cells, cell, ',');
    table.lookups_per_sample = std::stod(cell);
    tables.push_back(std::move(table));
  }
  return tables;
}

inline Topology HostsOf(int hosts, int devices, std::int64_t device_bytes) {
  Topology topology;
  for (int h = 0; h < hosts; ++h) {
    const std::string number = std::to_string(h);
    Host host;
    host.name = "h" + std::string(4 - number.size(), '0') + number;
    host.memory_bytes = devices * (std::int64_t{128} << 30);
    host.devices.assign(static_cast<std::size_t>(devices), Device{device_bytes, 1.0, ""});
    topology.hosts.push_back(std::move(host));
  }
  return topology;
}

// Every type but data_parallel and grid_shard.
inline std::vector<ShardingType> ModelParallelTypes() {
  return {ShardingType::kTableWise, ShardingType::kColumnWise, ShardingType::kTableColumnWise,
          ShardingType::kRowWise, ShardingType::kTableRowWise};
}

// Many small tables and a few large ones, as recommendation models have them. Only IEEE's exactly
// rounded operations: the same on every machine.
inline std::vector<Table> DrawTables(std::uint64_t seed, int count) {
  std::mt19937_64 random(seed);
  const auto uniform = [&] {
    return (static_cast<double>(random() >> 11) + 1) / 9007199254740993.0;
  };
  std::vector<Table> tables;
  for (int i = 0; i < count; ++i) {
    Table table;
    table.name = "t" + std::to_string(i);
    const double u = uniform();
    table.rows = static_cast<std::int64_t>(std::min(4e6, 1000 / (u * std::sqrt(std::sqrt(u)))));
    table.dim = std::uint32_t{16} << (random() % 4);
    table.lookups_per_sample = std::min(200.0, 1 / uniform());
    tables.push_back(std::move(table));
  }
  return tables;
}

inline Problem DrawnProblem(std::uint64_t seed, int tables, int hosts, int devices,
                            std::int64_t device_bytes = kScenarioDeviceBytes) {
  Problem problem;
  problem.tables = DrawTables(seed, tables);
  for (Table& table : problem.tables) table.rules.types = ModelParallelTypes();
  problem.topology = HostsOf(hosts, devices, device_bytes);
  problem.reservation.fraction = 0;
  problem.local_batch = 64;
  return problem;
}

}  // namespace embla::planner
