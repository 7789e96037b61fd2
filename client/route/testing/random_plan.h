// Random plans and batches, stranger than hand-written ones.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "client/include/embla/client.h"
#include "core/plan/plan.h"

namespace embla::client {

using Random = std::mt19937_64;

// Below `count`, which is not 0.
inline std::uint64_t Below(Random& random, std::uint64_t count) { return random() % count; }

// Tables of a random shape, without slices.
std::vector<TableSpec> RandomTables(Random& random);

// The tables cut into slices in one of the seven ways, or in no way that has a name. Rows and
// columns are cut anywhere.
Plan RandomPlan(Random& random, PlanVersion version, const std::vector<TableSpec>& tables);

// A feature's input, with the memory behind it.
struct RandomFeature {
  std::string table;
  std::uint32_t dim = 0;
  Pooling pooling = Pooling::kNone;
  std::vector<std::int64_t> ids;
  std::vector<std::uint32_t> lengths;  // Also for kNone: all 1.
  std::vector<std::int64_t> offsets;
  std::vector<float> weights;
  bool by_offsets = false;
  std::size_t stride = 0;     // Distance of rows in `values`; 0: dim.
  std::vector<float> values;  // Rows out, or gradients.

  std::size_t row_at(std::size_t row) const { return row * (stride == 0 ? dim : stride); }

  FeatureLookup lookup();
  FeatureGradient gradient() const;
};

// `range` 0: ids inside the table; else up to `range` outside it as well.
RandomFeature MakeRandomFeature(Random& random, const TableSpec& table, std::int64_t range);

}  // namespace embla::client
