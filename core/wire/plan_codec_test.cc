#include "core/wire/plan_codec.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "core/base/testing/status_matchers.h"

namespace embla::wire {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using Code = absl::StatusCode;

std::vector<NodeSpec> Nodes() {
  NodeSpec gpu{.id = NodeId{2}, .name = "n1", .address = "unix:/run/n1", .devices = {}};
  gpu.devices.push_back({.kind = DeviceKind::kGpu,
                         .memory_bytes = std::int64_t{1} << 36,
                         .memory_bytes_per_second = 3'350'000'000'000,
                         .peer_access = true});
  return {{.id = NodeId{1},
           .name = "n0",
           .address = "127.0.0.1:1",
           .devices = std::vector<DeviceSpec>(3, {DeviceKind::kCpu, 1 << 30})},
          gpu};
}

TablePlan Table(std::uint32_t id, std::int64_t rows, std::uint32_t granules) {
  TablePlan table;
  table.spec.id = TableId{id};
  table.spec.name = "t" + std::to_string(id);
  table.spec.rows = rows;
  table.spec.dim = 16;
  table.spec.row_granules = granules;
  table.spec.SetDefaults();
  table.replicas = {{{0, rows, 0, 16, {NodeId{1}, 0}}}};
  return table;
}

// A field that the codec forgets makes the round trip fail: none has its default.
TablePlan TableWithEverything() {
  TablePlan table = Table(7, 1000, 10);
  TableSpec& spec = table.spec;
  spec.dtype = DType::kBFloat16;
  spec.optimizer = {.kind = OptimizerKind::kAdam,
                    .learning_rate = 0.5f,
                    .eps = 1e-3f,
                    .beta1 = 0.8f,
                    .beta2 = 0.7f,
                    .initial_accumulator = 0.25f,
                    .weight_decay = 0.125f,
                    .weight_decay_mode = WeightDecayMode::kDecoupled,
                    .gradient_clip = 2.0f,
                    .bias_correction = BiasCorrection::kStep};
  spec.init = {InitKind::kUniform, -0.5f, 0.75f};
  spec.seed = 0xfedcba9876543210;
  spec.rounding = Rounding::kStochastic;
  spec.bounds = BoundsMode::kIgnore;
  spec.nan_policy = NanPolicy::kAllow;
  spec.replica_groups = 2;
  spec.sync_every_steps = 9;
  spec.lookups_per_sample = 3.5f;
  spec.durability = TableDurability::kSynced;
  spec.callers = {"t1", "t0"};
  spec.zch = ZchSpec{.buckets = 10,
                     .policy = zch::Policy::kTtl,
                     .distance_exponent = 2,
                     .ttl_steps = 77,
                     .evict_unexpired = true,
                     .admission = zch::Admission::kProbability,
                     .admission_count = 3,
                     .admission_probability = 0.25f,
                     .reserved_lanes = 5,
                     .unseen = zch::Unseen::kDefault,
                     .eviction_buffer_bytes = 1 << 20};
  spec.sync =
      SyncSpec{.step_timeout_ms = 700, .on_silence = OnSilence::kFail, .steps_ahead_max = 3};
  table.sharding = ShardingType::kGridShard;
  table.aside = true;
  table.steps.version = PlanVersion{4};
  table.steps.changes = 6;
  table.steps.members = {{.first_step = 0, .ranks = {Rank{0}, Rank{2}}, .optional = {Rank{1}}},
                         {.first_step = 9, .ranks = {}, .optional = {}}};
  table.steps.open =
      MemberChange{.number = 6, .kind = MemberChange::Kind::kFail, .step = 12, .ranks = {Rank{2}}};
  table.replicas = {{{0, 500, 0, 8, {NodeId{1}, 2}},
                     {500, 1000, 0, 16, {NodeId{2}, 0}},
                     {0, 300, 8, 16, {NodeId{1}, 1}},
                     {300, 500, 8, 16, {NodeId{1}, 0}}},
                    {{0, 1000, 0, 16, {NodeId{2}, 0}}}};
  return table;
}

TEST(PlanCodec, TableRoundTrips) {
  for (const TablePlan& table : {TableWithEverything(), Table(1, 12, 5)}) {
    const absl::StatusOr<TablePlan> again = FromMessage(ToMessage(table));
    ASSERT_THAT(again, IsOk());
    EXPECT_EQ(*again, table);
  }
}

TEST(PlanCodec, RowsThatAreDealtOutEvenlyAreARule) {
  TablePlan table = Table(1, 1'000'003, 4096);
  table.replicas.front().clear();
  for (std::uint32_t i = 0; i < 7; ++i) {
    const std::uint32_t begin = i * 585 + std::min(i, 1u);
    const std::uint32_t end = (i + 1) * 585 + 1;
    table.replicas.front().push_back({table.spec.RowGranuleBegin(begin),
                                      table.spec.RowGranuleBegin(end),
                                      0,
                                      16,
                                      {NodeId{1}, i % 3}});
  }
  ASSERT_THAT(table.Validate(), StatusIs(Code::kOk));
  const v1::PlanTable message = ToMessage(table);
  EXPECT_EQ(message.tilings(0).granule_begin_size(), 0);
  EXPECT_EQ(*FromMessage(message), table);
}

TEST(PlanCodec, RandomTilingsRoundTrip) {
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const std::int64_t rows =
        1 + static_cast<std::int64_t>(random() % (seed % 2 ? 3000 : kRowsMax));
    const auto granules = static_cast<std::uint32_t>(
        1 + random() % std::min<std::uint64_t>(rows, seed % 3 ? 50 : kRowGranulesMax));
    TablePlan table = Table(1, rows, granules);
    table.replicas.front().clear();
    for (std::uint32_t begin = 0; begin < granules;) {
      const auto end = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(granules, begin + 1 + random() % (granules / 3 + 1)));
      table.replicas.front().push_back({table.spec.RowGranuleBegin(begin),
                                        table.spec.RowGranuleBegin(end),
                                        0,
                                        16,
                                        {NodeId{1}, static_cast<std::uint32_t>(random() % 3)}});
      begin = end;
    }
    EXPECT_EQ(*FromMessage(ToMessage(table)), table);
  }
}

TEST(PlanCodec, ADeltaLeadsFromOnePlanToTheNext) {
  const Plan before(PlanVersion{4}, "cluster-a", Nodes(), {Table(1, 10, 5), Table(2, 10, 5)});
  const Plan after(
      PlanVersion{6}, "cluster-a", {Nodes()[0]},
      TableList(std::vector<TablePtr>{before.tables().pointers()[0],
                                      std::make_shared<const TablePlan>(Table(3, 20, 5))}));
  const v1::PlanDelta message = ToMessage(DeltaBetween(before, after));
  EXPECT_EQ(message.tables_size(), 1);
  EXPECT_EQ(message.nodes_size(), 0);
  const absl::StatusOr<PlanPtr> plan = ApplyMessage(message, before);
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(**plan, after);
  EXPECT_EQ((*plan)->tables().pointers()[0], before.tables().pointers()[0]) << "it is shared";

  const absl::StatusOr<PlanPtr> whole =
      ApplyMessage(ToMessage(DeltaBetween(Plan(), after)), Plan());
  ASSERT_THAT(whole, IsOk());
  EXPECT_EQ(**whole, after);
  EXPECT_THAT(ApplyMessage(message, after), StatusIs(Code::kFailedPrecondition));
}

TEST(PlanCodec, RefusesWhatMakesNoPlan) {
  const Plan plan(PlanVersion{4}, "cluster-a", Nodes(), {Table(1, 10, 5)});
  const v1::PlanDelta good = ToMessage(DeltaBetween(Plan(), plan));
  std::vector<v1::PlanDelta> bad(7, good);
  bad[0].mutable_tables(0)->mutable_spec()->set_dtype(9);
  bad[1].mutable_tables(0)->set_sharding(300);
  bad[2].mutable_tables(0)->mutable_tilings(0)->add_devices(1);
  bad[3].mutable_tables(0)->mutable_tilings(0)->add_granule_begin(0);
  bad[3].mutable_tables(0)->mutable_tilings(0)->add_granule_end(6);
  bad[4].mutable_tables(0)->clear_tilings();
  bad[5].mutable_nodes(0)->mutable_devices(0)->set_kind(0);
  bad[6].mutable_tables(0)->mutable_spec()->set_row_granules(0);
  for (const v1::PlanDelta& message : bad) {
    EXPECT_THAT(ApplyMessage(message, Plan()), StatusIs(Code::kInvalidArgument));
  }
  EXPECT_THAT(ApplyMessage(good, Plan()), IsOk());
}

}  // namespace
}  // namespace embla::wire
