// Tables whose units move in tests.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "core/plan/plan.h"
#include "server/shard/testing/random_table.h"

namespace embla::testing {

// Makes a table of any number format and optimizer; it may be a ZCH table, have replica groups or
// synchronous steps, or units of several chunks.
inline TableSpec RandomUnitTable(TableId id, std::mt19937& random) {
  TableSpec spec;
  spec.id = id;
  spec.name = "t";
  spec.rows = 60;
  spec.dim = 8;
  spec.dtype = Pick(random, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  spec.rounding = Pick(random, {Rounding::kNearest, Rounding::kStochastic});
  spec.seed = random();
  spec.optimizer.kind = kOptimizerKinds[random() % kOptimizerKinds.size()];
  spec.row_granules = 6;
  if (random() % 3 == 0) {  // Several chunks.
    spec.rows = 1200;
    spec.dim = 1024;
    spec.row_granules = 2;
  } else if (random() % 2 == 0) {
    spec.zch = ZchSpec{.buckets = 6, .policy = zch::Policy::kLru};
    spec.rows = 6 * 64;
  }
  if (!spec.zch.has_value() && random() % 2 == 0) spec.replica_groups = 2;
  if (spec.replica_groups == 1 && random() % 2 == 0) spec.sync.emplace().steps_ahead_max = 255;
  spec.SetDefaults();
  return spec;
}

// Whole rows; by row granule, its device.
inline std::vector<Slice> TilingOf(const TableSpec& spec, const std::vector<DeviceId>& places) {
  std::vector<Slice> tiling;
  for (std::uint32_t granule = 0; granule < places.size(); ++granule) {
    tiling.push_back({.row_begin = spec.RowGranuleBegin(granule),
                      .row_end = spec.RowGranuleBegin(granule + 1),
                      .column_begin = 0,
                      .column_end = spec.dim,
                      .device = places[granule]});
  }
  return tiling;
}

}  // namespace embla::testing
