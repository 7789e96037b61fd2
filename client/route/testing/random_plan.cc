#include "client/route/testing/random_plan.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"

namespace embla::client {
namespace {

// Up to `pieces` borders of [0, size), both ends included.
std::vector<std::int64_t> Cut(Random& random, std::int64_t size, std::uint64_t pieces) {
  std::set<std::int64_t> borders = {0, size};
  for (std::uint64_t i = 1; i < pieces; ++i) {
    borders.insert(static_cast<std::int64_t>(Below(random, size)));
  }
  return {borders.begin(), borders.end()};
}

struct Topology {
  std::uint32_t nodes = 1;
  std::uint32_t devices = 1;

  DeviceId Any(Random& random) const {
    return {NodeId{1 + static_cast<std::uint32_t>(Below(random, nodes))},
            static_cast<std::uint32_t>(Below(random, devices))};
  }
};

// Slices of the columns [begin, end): rows cut into pieces on any devices.
void CutRows(Random& random, const TableSpec& spec, const Topology& topology, std::uint32_t begin,
             std::uint32_t end, std::uint64_t pieces, std::vector<Slice>& slices) {
  const std::vector<std::int64_t> rows = Cut(random, spec.rows, pieces);
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
    slices.push_back({rows[i], rows[i + 1], begin, end, topology.Any(random)});
  }
}

std::vector<Slice> Tile(Random& random, const TableSpec& spec, const Topology& topology,
                        ShardingType type) {
  std::vector<Slice> slices;
  const std::uint64_t all = topology.nodes * topology.devices;
  Topology one_node = topology;
  if (type == ShardingType::kTableRowWise || type == ShardingType::kTableColumnWise) {
    one_node.nodes = 1;
  }
  const bool cuts_columns = type == ShardingType::kColumnWise ||
                            type == ShardingType::kTableColumnWise ||
                            type == ShardingType::kGridShard;
  const bool cuts_rows = type == ShardingType::kRowWise || type == ShardingType::kTableRowWise ||
                         type == ShardingType::kGridShard;
  const std::vector<std::int64_t> columns = Cut(random, spec.dim, cuts_columns ? all : 1);
  for (std::size_t c = 0; c + 1 < columns.size(); ++c) {
    CutRows(random, spec, one_node, static_cast<std::uint32_t>(columns[c]),
            static_cast<std::uint32_t>(columns[c + 1]), cuts_rows ? all : 1, slices);
  }
  return slices;
}

// Ids of the table, each as often as it has to be; in about half of the batches one id is there
// once more.
void MakeFewDuplicates(Random& random, std::int64_t rows, std::vector<std::int64_t>& ids) {
  std::vector<std::int64_t> all(rows);
  std::iota(all.begin(), all.end(), std::int64_t{0});
  std::shuffle(all.begin(), all.end(), random);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = all[i % all.size()];
  if (!ids.empty() && Below(random, 2) == 0) ids.back() = ids.front();
}

}  // namespace

std::vector<TableSpec> RandomTables(Random& random) {
  std::vector<TableSpec> tables(1 + Below(random, 3));
  for (std::size_t t = 0; t < tables.size(); ++t) {
    TableSpec& spec = tables[t];
    spec.id = TableId{static_cast<std::uint32_t>(t + 1)};
    spec.name = absl::StrCat("table", t);
    spec.rows = 1 + static_cast<std::int64_t>(Below(random, 200));
    spec.dim = 1 + static_cast<std::uint32_t>(Below(random, 40));
    spec.seed = t;
    spec.bounds = Below(random, 2) == 0 ? BoundsMode::kError : BoundsMode::kIgnore;
    spec.optimizer.kind =
        Below(random, 2) == 0 ? OptimizerKind::kSgd : OptimizerKind::kRowwiseAdagrad;
    spec.optimizer.gradient_clip = Below(random, 3) == 0 ? 0.5f : 0.0f;
    spec.SetDefaults();
  }
  return tables;
}

Plan RandomPlan(Random& random, PlanVersion version, const std::vector<TableSpec>& tables) {
  Topology topology;
  topology.nodes = 1 + static_cast<std::uint32_t>(Below(random, 4));
  topology.devices = 1 + static_cast<std::uint32_t>(Below(random, 3));
  std::vector<NodeSpec> nodes;
  for (std::uint32_t n = 1; n <= topology.nodes; ++n) {
    nodes.push_back({NodeId{n}, absl::StrCat("n", n), absl::StrCat("fake:", n),
                     std::vector<DeviceSpec>(topology.devices)});
  }
  std::vector<TablePlan> plans;
  for (const TableSpec& spec : tables) {
    TablePlan& plan = plans.emplace_back();
    plan.spec = spec;
    plan.sharding = static_cast<ShardingType>(1 + Below(random, 7));
    if (plan.sharding != ShardingType::kDataParallel) {
      plan.replicas.push_back(Tile(random, spec, topology, plan.sharding));
      continue;
    }
    const std::uint32_t primary = static_cast<std::uint32_t>(Below(random, topology.nodes));
    for (std::uint32_t n = 0; n < topology.nodes; ++n) {
      const NodeId node{1 + (primary + n) % topology.nodes};
      plan.replicas.push_back({{0, spec.rows, 0, spec.dim, {node, 0}}});
    }
  }
  return Plan(version, "test", std::move(nodes), std::move(plans));
}

FeatureLookup RandomFeature::lookup() {
  FeatureLookup feature{.table = table,
                        .ids = ids,
                        .weights = weights,
                        .pooling = pooling,
                        .rows_out = values,
                        .rows_out_stride = stride};
  if (by_offsets) feature.offsets = offsets;
  if (!by_offsets && pooling != Pooling::kNone) feature.lengths = lengths;
  return feature;
}

FeatureGradient RandomFeature::gradient() const {
  FeatureGradient feature{.table = table,
                          .ids = ids,
                          .weights = weights,
                          .pooling = pooling,
                          .gradients = values,
                          .gradients_stride = stride};
  if (by_offsets) feature.offsets = offsets;
  if (!by_offsets && pooling != Pooling::kNone) feature.lengths = lengths;
  return feature;
}

RandomFeature MakeRandomFeature(Random& random, const TableSpec& table, std::int64_t range) {
  RandomFeature feature;
  feature.table = table.name;
  feature.dim = table.dim;
  feature.pooling = static_cast<Pooling>(1 + Below(random, 3));
  feature.by_offsets = Below(random, 2) == 0;
  std::vector<std::uint32_t> lengths(Below(random, 50));
  const bool pooled = feature.pooling != Pooling::kNone && Below(random, 4) != 0;
  for (std::uint32_t& length : lengths) {
    length = pooled ? static_cast<std::uint32_t>(Below(random, 6)) : 1;
    if (pooled && Below(random, 20) == 0) length = 400;  // Longer than a piece of a sum.
  }
  feature.ids.resize(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}));
  for (std::int64_t& id : feature.ids) {
    id = static_cast<std::int64_t>(Below(random, table.rows + 2 * range)) - range;
  }
  if (Below(random, 2) == 0) MakeFewDuplicates(random, table.rows, feature.ids);
  feature.offsets.push_back(0);
  for (const std::uint32_t length : lengths) {
    feature.offsets.push_back(feature.offsets.back() + length);
  }
  if (feature.pooling == Pooling::kSum && Below(random, 2) == 0) {
    feature.weights.resize(feature.ids.size());
    for (float& weight : feature.weights) weight = static_cast<float>(Below(random, 100)) / 7.0f;
  }
  if (Below(random, 3) == 0) feature.stride = table.dim + Below(random, 9);
  feature.values.resize(feature.row_at(lengths.size()));
  for (float& value : feature.values) value = static_cast<float>(Below(random, 2001)) / 1e3f - 1.0f;
  feature.lengths = std::move(lengths);
  return feature;
}

}  // namespace embla::client
