// Random batches under random plans, and plans that change on the way, against one plain table.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/route/lookup_route.h"
#include "client/route/testing/fake_nodes.h"
#include "client/route/testing/random_plan.h"
#include "client/route/update_route.h"
#include "core/base/testing/status_matchers.h"
#include "kernels/combine.h"
#include "kernels/convert.h"

namespace embla::client {
namespace {

using ::embla::testing::IsOk;

constexpr int kLookupSeeds = 400;
constexpr int kUpdateSeeds = 120;

PlanPtr MakePlan(Random& random, std::uint64_t version, const std::vector<TableSpec>& tables) {
  return std::make_shared<Plan>(RandomPlan(random, PlanVersion{version}, tables));
}

// `value` after a trip in `wire_dtype` (not int8, which depends on the neighbours).
float OnWire(float value, DType wire_dtype) {
  std::byte bytes[4];
  float result = 0;
  kernels::Convert({&value, 4}, {bytes, 4, ElementOf(wire_dtype)}, 1, 1);
  kernels::Convert({bytes, 4, ElementOf(wire_dtype)}, {&result, 4}, 1, 1);
  return result;
}

// Sends all shares; a share that the nodes refuse for their newer plan is split again by it.
absl::Status RunLookup(LookupRoute& route, FakeNodes& nodes, const Routes& old_routes,
                       const Routes& new_routes) {
  auto shares = route.Split(old_routes, kNoNode);
  if (!shares.ok()) return shares.status();
  std::vector<LookupShare> answered;
  for (LookupShare& share : *shares) {
    absl::Status status = nodes.Lookup(share.node, route.Build(share));
    if (status.ok()) {
      answered.push_back(std::move(share));
      continue;
    }
    if (!absl::IsFailedPrecondition(status)) return status;
    auto again = route.Resplit(share, new_routes, kNoNode);
    if (!again.ok()) return again.status();
    for (LookupShare& part : *again) {
      status = nodes.Lookup(part.node, route.Build(part));
      if (!status.ok()) return status;
      answered.push_back(std::move(part));
    }
  }
  std::vector<const LookupShare*> pointers;
  for (const LookupShare& share : answered) pointers.push_back(&share);
  route.Merge(pointers);
  return absl::OkStatus();
}

// The rows or bags that `feature` should read, in double.
std::vector<double> Expected(const RandomFeature& feature, const PlainTable& table) {
  std::vector<double> rows(feature.lengths.size() * feature.dim);
  std::size_t next = 0;
  for (std::size_t b = 0; b < feature.lengths.size(); ++b) {
    for (std::uint32_t k = 0; k < feature.lengths[b]; ++k, ++next) {
      const std::int64_t id = feature.ids[next];
      if (id < 0 || id >= table.spec().rows) continue;
      double factor = feature.weights.empty() ? 1.0 : feature.weights[next];
      if (feature.pooling == Pooling::kMean) factor = 1.0 / feature.lengths[b];
      for (std::uint32_t c = 0; c < feature.dim; ++c) {
        rows[b * feature.dim + c] += factor * table.weight(id, c);
      }
    }
  }
  return rows;
}

void CheckRows(const RandomFeature& feature, const PlainTable& table, DType wire_dtype) {
  const std::vector<double> expected = Expected(feature, table);
  const bool has_row_per_id =
      feature.weights.empty() &&
      std::ranges::all_of(feature.lengths, [](std::uint32_t length) { return length == 1; });
  const bool exact = has_row_per_id && wire_dtype != DType::kInt8Rowwise;
  const double relative = wire_dtype == DType::kFloat32       ? 1e-5
                          : wire_dtype == DType::kInt8Rowwise ? 2e-2
                                                              : 1e-2;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const float value = feature.values[feature.row_at(i / feature.dim) + i % feature.dim];
    if (exact) {
      ASSERT_EQ(value, OnWire(static_cast<float>(expected[i]), wire_dtype)) << i;
    } else {
      // Bounds a bag's sum of absolute values: its weights are below 15, its rows below 1.
      const double scale = 1.0 + 15.0 * feature.lengths[i / feature.dim];
      ASSERT_NEAR(value, expected[i], relative * scale) << i;
    }
  }
}

// Between the rows of an array that other features share, nothing changes.
void ExpectOnlyRowsWritten(const RandomFeature& before, const RandomFeature& after) {
  if (after.stride == 0) return;
  for (std::size_t i = 0; i < after.values.size(); ++i) {
    if (i % after.stride < after.dim) continue;
    ASSERT_EQ(after.values[i], before.values[i]) << i;
  }
}

void LookupUnderRandomPlans(std::uint64_t seed) {
  Random random(seed);
  const std::vector<TableSpec> tables = RandomTables(random);
  const PlanPtr old_plan = MakePlan(random, 1, tables);
  const PlanPtr new_plan = Below(random, 2) == 0 ? old_plan : MakePlan(random, 2, tables);
  FakeNodes nodes(new_plan);
  const LookupRoute::Options options{.wire_dtype = static_cast<DType>(1 + Below(random, 4)),
                                     .combine_duplicates = Below(random, 2) == 0,
                                     .session = SessionId{random()}};
  std::vector<RandomFeature> inputs;
  for (std::size_t f = Below(random, 5); f > 0; --f) {
    const TableSpec& table = tables[Below(random, tables.size())];
    inputs.push_back(MakeRandomFeature(random, table, table.bounds == BoundsMode::kIgnore ? 9 : 0));
  }
  std::vector<FeatureLookup> features;
  for (RandomFeature& input : inputs) features.push_back(input.lookup());
  const std::vector<RandomFeature> before = inputs;
  const Routes old_routes(old_plan), new_routes(new_plan);
  BufferPool pool;
  auto route = LookupRoute::Create(features, old_routes, options, pool);
  ASSERT_THAT(route, IsOk());
  ASSERT_EQ(RunLookup(*route, nodes, old_routes, new_routes), absl::OkStatus());
  for (std::size_t f = 0; f < inputs.size(); ++f) ExpectOnlyRowsWritten(before[f], inputs[f]);
  for (const RandomFeature& input : inputs) {
    CheckRows(input, nodes.table(new_plan->FindTable(std::string_view(input.table))->spec.id),
              options.wire_dtype);
  }
}

TEST(LookupRouteProperty, ReadsWhatOnePlainTableWouldGive) {
  for (std::uint64_t seed = 1; seed <= kLookupSeeds; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    ASSERT_NO_FATAL_FAILURE(LookupUnderRandomPlans(seed));
  }
}

TEST(LookupRouteProperty, MeansOfSplitBagsAreThoseOfWholeBags) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    std::vector<TableSpec> tables = RandomTables(random);
    tables.resize(1);
    tables[0].bounds = BoundsMode::kError;
    RandomFeature input = MakeRandomFeature(random, tables[0], 0);
    // One node has all ids of a bag, so the sum is the same under every plan.
    input.pooling = Pooling::kMean;
    input.weights.clear();
    for (std::size_t i = 0; i < input.ids.size(); ++i) input.ids[i] = input.ids[0];
    std::vector<float> first;
    for (std::uint64_t version = 1; version <= 5; ++version) {
      const PlanPtr plan = MakePlan(random, version, tables);
      const Routes routes(plan);
      FakeNodes nodes(plan);
      const FeatureLookup feature = input.lookup();
      BufferPool pool;
      auto route = LookupRoute::Create({&feature, 1}, routes, {}, pool);
      ASSERT_THAT(route, IsOk());
      ASSERT_EQ(RunLookup(*route, nodes, routes, routes), absl::OkStatus());
      if (version == 1) first = input.values;
      ASSERT_EQ(input.values, first);
    }
  }
}

absl::Status RunUpdate(UpdateRoute& route, FakeNodes& nodes, const Routes& old_routes,
                       const Routes& new_routes) {
  auto shares = route.Split(old_routes);
  if (!shares.ok()) return shares.status();
  for (const UpdateShare& share : *shares) {
    absl::Status status = nodes.Update(share.node, route.Build(share, {}));
    if (status.ok()) continue;
    if (!absl::IsFailedPrecondition(status)) return status;
    auto again = route.Resplit(share, new_routes);
    if (!again.ok()) return again.status();
    for (const UpdateShare& part : *again) {
      status = nodes.Update(part.node, route.Build(part, {}));
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

// The whole update on one plain table: clamp, weigh, sum, (round,) step.
void ApplyPlainly(const std::vector<RandomFeature>& inputs, DType wire_dtype, PlainTable& table) {
  const TableSpec& spec = table.spec();
  std::map<std::int64_t, std::vector<CanonicalSum>> sums;
  for (const RandomFeature& input : inputs) {
    if (input.table != spec.name) continue;
    std::size_t next = 0;
    for (std::size_t b = 0; b < input.lengths.size(); ++b) {
      for (std::uint32_t k = 0; k < input.lengths[b]; ++k, ++next) {
        if (input.ids[next] < 0 || input.ids[next] >= spec.rows) continue;
        float factor = input.weights.empty() ? 1.0f : input.weights[next];
        if (input.pooling == Pooling::kMean) factor = 1.0f / static_cast<float>(input.lengths[b]);
        std::vector<CanonicalSum>& row = sums[input.ids[next]];
        row.resize(spec.dim);
        for (std::uint32_t c = 0; c < spec.dim; ++c) {
          float value = input.values[input.row_at(b) + c];
          const float clip = spec.optimizer.gradient_clip;
          if (clip > 0) value = std::clamp(value, -clip, clip);
          row[c].Add(value * factor);
        }
      }
    }
  }
  for (const auto& [id, row] : sums) {
    std::vector<float> gradient;
    for (const CanonicalSum& sum : row) gradient.push_back(OnWire(sum.Total(), wire_dtype));
    float sum_squares = 0;
    kernels::RowSumSquares({gradient.data(), spec.dim * sizeof(float), spec.dim},
                           {&sum_squares, 1});
    for (std::uint32_t c = 0; c < spec.dim; ++c) table.Step(id, c, gradient[c], sum_squares);
  }
}

void UpdateUnderRandomPlans(std::uint64_t seed) {
  Random random(seed);
  const std::vector<TableSpec> tables = RandomTables(random);
  const PlanPtr old_plan = MakePlan(random, 1, tables);
  const PlanPtr new_plan = Below(random, 2) == 0 ? old_plan : MakePlan(random, 2, tables);
  FakeNodes nodes(new_plan);
  // Rounded sums are only known when the client sums.
  const bool combine = Below(random, 2) == 0;
  const DType wire = combine ? static_cast<DType>(1 + Below(random, 3)) : DType::kFloat32;
  const Routes old_routes(old_plan), new_routes(new_plan);
  std::vector<PlainTable> plain;
  for (const TableSpec& spec : tables) plain.emplace_back(spec);
  for (int step = 0; step < 3; ++step) {
    std::vector<RandomFeature> inputs;
    for (std::size_t f = Below(random, 5); f > 0; --f) {
      const TableSpec& table = tables[Below(random, tables.size())];
      const std::int64_t range = table.bounds == BoundsMode::kIgnore ? 9 : 0;
      inputs.push_back(MakeRandomFeature(random, table, range));
    }
    std::vector<FeatureGradient> features;
    for (const RandomFeature& input : inputs) features.push_back(input.gradient());
    BufferPool pool;
    auto route = UpdateRoute::Create(features, old_routes,
                                     {.wire_dtype = wire, .combine_duplicates = combine}, pool);
    ASSERT_THAT(route, IsOk());
    ASSERT_EQ(RunUpdate(*route, nodes, old_routes, new_routes), absl::OkStatus());
    for (PlainTable& table : plain) ApplyPlainly(inputs, wire, table);
  }
  for (const PlainTable& table : plain) {
    ASSERT_EQ(nodes.table(table.spec().id).weights(), table.weights()) << table.spec().name;
  }
}

TEST(UpdateRouteProperty, StepsBitForBitLikeOnePlainTable) {
  for (std::uint64_t seed = 1; seed <= kUpdateSeeds; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    ASSERT_NO_FATAL_FAILURE(UpdateUnderRandomPlans(seed));
  }
}

void WriteUnderRandomPlans(std::uint64_t seed) {
  Random random(seed);
  const std::vector<TableSpec> tables = RandomTables(random);
  const PlanPtr old_plan = MakePlan(random, 1, tables);
  const PlanPtr new_plan = Below(random, 2) == 0 ? old_plan : MakePlan(random, 2, tables);
  FakeNodes nodes(new_plan);
  const Routes old_routes(old_plan), new_routes(new_plan);
  const TableSpec& spec = tables[Below(random, tables.size())];
  PlainTable plain(spec);
  std::vector<std::int64_t> ids;
  for (std::int64_t id = 0; id < spec.rows; ++id) {
    if (Below(random, 3) == 0) ids.push_back(id);
  }
  std::shuffle(ids.begin(), ids.end(), random);
  const bool with_state =
      spec.optimizer.kind == OptimizerKind::kRowwiseAdagrad && Below(random, 2) == 0;
  const bool with_weights = !with_state || Below(random, 2) == 0;
  std::vector<float> weights(with_weights ? ids.size() * spec.dim : 0);
  std::vector<float> state(with_state ? ids.size() : 0);
  for (float& value : weights) value = static_cast<float>(Below(random, 1000));
  for (float& value : state) value = static_cast<float>(Below(random, 1000));
  BufferPool pool;
  auto route = UpdateRoute::CreateWrite({spec.name, ids, weights, state}, old_routes, {}, pool);
  ASSERT_THAT(route, IsOk());
  ASSERT_EQ(RunUpdate(*route, nodes, old_routes, new_routes), absl::OkStatus());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    for (std::uint32_t c = 0; c < spec.dim; ++c) {
      std::optional<float> weight, statistic;
      if (with_weights) weight = weights[i * spec.dim + c];
      if (with_state) statistic = state[i];
      plain.Write(ids[i], c, weight, statistic);
    }
  }
  const PlainTable& table = nodes.table(spec.id);
  ASSERT_EQ(table.weights(), plain.weights());
  for (std::int64_t row = 0; row < spec.rows; ++row) {
    ASSERT_EQ(table.statistic(row, spec.dim - 1), plain.statistic(row, spec.dim - 1)) << row;
  }
}

TEST(UpdateRouteProperty, WritesEveryRowOnceWhereverItIs) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    ASSERT_NO_FATAL_FAILURE(WriteUnderRandomPlans(seed));
  }
}

// The parts of an update with two features of a ZCH table, the first of which has TTL 5.
std::vector<std::pair<std::uint32_t, std::vector<RowId>>> PartsByTtl(bool combine) {
  TableSpec spec;
  spec.id = TableId{1};
  spec.name = "users";
  spec.rows = 64;
  spec.dim = 1;
  spec.zch = ZchSpec{.buckets = 1, .policy = zch::Policy::kTtl, .ttl_steps = 10};
  spec.SetDefaults();
  const NodeId node{1};
  const Slice slice{
      .row_begin = 0, .row_end = 64, .column_begin = 0, .column_end = 1, .device = {node, 0}};
  const Routes routes(std::make_shared<Plan>(
      PlanVersion{1}, "test",
      std::vector<NodeSpec>{{node, "n0", "host:1", {{DeviceKind::kCpu, 1 << 20}}}},
      std::vector<TablePlan>{
          {.spec = spec, .sharding = ShardingType::kTableWise, .replicas = {{slice}}}}));
  const std::vector<std::int64_t> ids = {1, 2, 2, 3};
  const std::vector<float> gradients = {1, 1, 1, 1};
  const FeatureGradient features[] = {{.table = "users",
                                       .ids = std::span(ids).first(2),
                                       .gradients = std::span(gradients).first(2),
                                       .ttl_steps = 5},
                                      {.table = "users",
                                       .ids = std::span(ids).subspan(2),
                                       .gradients = std::span(gradients).subspan(2)}};
  BufferPool pool;
  auto route = UpdateRoute::Create(features, routes, {.combine_duplicates = combine}, pool);
  EXPECT_THAT(route, IsOk());
  const auto shares = route->Split(routes);
  EXPECT_THAT(shares, IsOk());
  std::vector<std::pair<std::uint32_t, std::vector<RowId>>> parts;
  const NodeUpdate request = route->Build(shares->front(), {});
  for (const UpdatePart& part : request.batch.parts) {
    parts.emplace_back(part.ttl_steps, std::vector<RowId>(part.ids.begin(), part.ids.end()));
  }
  return parts;
}

TEST(UpdateRouteTtl, AnIdOfTwoFeaturesIsSentOnceWithTheLongestTtl) {
  using Ids = std::vector<RowId>;
  EXPECT_THAT(PartsByTtl(/*combine=*/true),
              ::testing::ElementsAre(::testing::Pair(5, Ids{RowId{1}}),
                                     ::testing::Pair(10, Ids{RowId{2}, RowId{3}})));
  EXPECT_THAT(PartsByTtl(/*combine=*/false),
              ::testing::ElementsAre(::testing::Pair(5, Ids{RowId{1}, RowId{2}}),
                                     ::testing::Pair(0, Ids{RowId{2}, RowId{3}})));
}

}  // namespace
}  // namespace embla::client
