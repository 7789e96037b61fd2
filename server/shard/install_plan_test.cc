// Plans arriving at a node: what is kept, what is new, what is refused without a trace.
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "core/metrics/testing/series_count.h"
#include "core/planner/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/journal.h"
#include "server/shard/shard_node_impl.h"
#include "server/shard/testing/local_cluster.h"

namespace embla::install_plan_test {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::EncodeRows;
using ::embla::testing::IsOk;
using ::embla::testing::LocalCluster;
using ::embla::testing::LookupPartData;
using ::embla::testing::Pack;
using ::embla::testing::SeriesCount;
using ::embla::testing::StatusIs;
using ::embla::testing::UpdatePartData;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

constexpr NodeId kFirst{1};

TableSpec Spec(std::uint32_t id, std::int64_t rows = 100) {
  TableSpec spec;
  spec.id = TableId{id};
  spec.name = absl::StrCat("t", id);
  spec.rows = rows;
  spec.dim = 4;
  spec.optimizer.kind = OptimizerKind::kSgd;
  spec.optimizer.learning_rate = 1.0f;
  spec.init = {InitKind::kConstant, 0.0f, 0.0f};
  spec.SetDefaults();
  return spec;
}

TablePlan OnDevice(const TableSpec& spec, std::uint32_t device) {
  TablePlan plan;
  plan.spec = spec;
  plan.replicas = {{{0, spec.rows, 0, spec.dim, {kFirst, device}}}};
  return plan;
}

class InstallPlanTest : public ::testing::Test {
 protected:
  InstallPlanTest() : cluster_({.devices_per_node = 2, .device_bytes = 1 << 20}) {}

  absl::StatusOr<LookupResult> Lookup(std::uint32_t table, std::int64_t row) {
    LookupPartData data;
    data.part.table = TableId{table};
    data.part.column_end = 4;
    data.ids = {RowId{row}};
    return cluster_.Lookup(kFirst, Pack(LookupBatch{}, {data}));
  }
  absl::Status Update(std::uint32_t table, std::int64_t row, std::uint64_t seq) {
    UpdatePartData data;
    data.part.table = TableId{table};
    data.part.column_end = 4;
    data.ids = {RowId{row}};
    data.gradients = EncodeRows(std::vector<float>(4, 1.0f), 4, DType::kFloat32);
    UpdateBatch header;
    header.session = SessionId{1};
    header.seq = UpdateSeq{seq};
    header.first_incomplete = UpdateSeq{seq};
    return cluster_.Update(kFirst, Pack(header, {data})).status();
  }
  std::vector<float> Row(std::uint32_t table, std::int64_t row) {
    const absl::StatusOr<LookupResult> result = Lookup(table, row);
    if (!result.ok()) return {};
    const std::span<const float> values = result->rows.As<float>();
    return {values.begin(), values.end()};
  }

  LocalCluster cluster_;
};

TEST_F(InstallPlanTest, KeepsTheRowsOfExistingTables) {
  ASSERT_THAT(cluster_.Install({OnDevice(Spec(1), 0)}), IsOk());
  ASSERT_THAT(Update(1, 5, 1), IsOk());
  ASSERT_THAT(cluster_.Install({OnDevice(Spec(1), 0), OnDevice(Spec(2), 1)}), IsOk());
  EXPECT_THAT(Row(1, 5), Each(-1.0f));
  EXPECT_THAT(Row(2, 5), Each(0.0f));
  ASSERT_THAT(Update(1, 5, 1), IsOk());  // Its replay window was kept too.
  EXPECT_THAT(Row(1, 5), Each(-1.0f));
}

// Table 1 in two replica groups, on the two devices.
TablePlan InGroups(std::uint32_t sync_every_steps) {
  TablePlan plan = OnDevice(Spec(1), 0);
  plan.spec.replica_groups = 2;
  plan.spec.sync_every_steps = sync_every_steps;
  plan.replicas.push_back(OnDevice(Spec(1), 1).replicas.front());
  return plan;
}

TEST_F(InstallPlanTest, TheIntervalOfAveragingChangesWhileTheRowsStay) {
  ASSERT_THAT(cluster_.Install({InGroups(0)}), IsOk());
  ASSERT_THAT(Update(1, 5, 1), IsOk());
  const absl::Status changed = cluster_.Install({InGroups(3)});
  EXPECT_THAT(changed, IsOk());
  EXPECT_THAT(Row(1, 5), Each(-1.0f));
}

TEST_F(InstallPlanTest, RefusesToChangeTheGroupsOfATableOrToPutThemElsewhere) {
  ASSERT_THAT(cluster_.Install({InGroups(0)}), IsOk());
  EXPECT_EQ(cluster_.Install({OnDevice(Spec(1), 0)}).code(), Code::kInvalidArgument);
  TablePlan crossed = InGroups(0);
  std::swap(crossed.replicas[0], crossed.replicas[1]);
  const auto plan = std::make_shared<const Plan>(PlanVersion{9}, "test", cluster_.specs(),
                                                 std::vector<TablePlan>{crossed});
  const absl::Status status = cluster_.node(0).InstallPlan(plan, kFirst);
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
  std::vector<NodeSpec> larger = cluster_.specs();
  larger[0].devices.resize(4, larger[0].devices[0]);
  TablePlan apart = InGroups(0);
  apart.spec.id = TableId{2};
  apart.replicas[1][0].device.index = 2;
  const auto other = std::make_shared<const Plan>(PlanVersion{9}, "test", larger,
                                                  std::vector<TablePlan>{InGroups(0), apart});
  EXPECT_THAT(std::string(cluster_.node(0).InstallPlan(other, kFirst).message()),
              HasSubstr("device"));
  EXPECT_THAT(Lookup(1, 5), IsOk());
}

TEST_F(InstallPlanTest, FreesTheMemoryOfDroppedTables) {
  ASSERT_THAT(cluster_.Install({OnDevice(Spec(1), 0), OnDevice(Spec(2), 1)}), IsOk());
  EXPECT_GT(cluster_.node(0).device_used_bytes()[0], 0);
  ASSERT_THAT(cluster_.Install({OnDevice(Spec(2), 1)}), IsOk());
  EXPECT_EQ(cluster_.node(0).device_used_bytes()[0], 0);
  EXPECT_EQ(Lookup(1, 5).status().code(), Code::kNotFound);
  EXPECT_THAT(Lookup(2, 5), IsOk());
}

TEST_F(InstallPlanTest, OlderAndEqualPlansAreIgnored) {
  ASSERT_THAT(cluster_.Install({OnDevice(Spec(1), 0)}), IsOk());
  const PlanPtr current = cluster_.plan();
  for (const std::uint64_t version : {0, 1}) {
    const auto other = std::make_shared<const Plan>(PlanVersion{version}, "test", cluster_.specs(),
                                                    std::vector<TablePlan>{});
    EXPECT_THAT(cluster_.node(0).InstallPlan(other, kFirst), IsOk());
  }
  EXPECT_EQ(cluster_.node(0).plan(), current);
  EXPECT_THAT(Lookup(1, 5), IsOk());
}

TEST_F(InstallPlanTest, NoMemoryIsResourceExhaustedAndLeavesEverything) {
  ASSERT_THAT(cluster_.Install({OnDevice(Spec(1), 0)}), IsOk());
  const std::vector<std::int64_t> used = cluster_.node(0).device_used_bytes();
  const absl::Status status = cluster_.Install(
      {OnDevice(Spec(1), 0), OnDevice(Spec(2), 1), OnDevice(Spec(3, 1'000'000), 0)});
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("node n0 cannot install plan 2"));
  EXPECT_EQ(cluster_.node(0).device_used_bytes(), used);
  EXPECT_EQ(ToInt(cluster_.node(0).plan()->version()), 1u);
  EXPECT_THAT(Lookup(1, 5), IsOk());
  EXPECT_THAT(Lookup(2, 5), StatusIs(Code::kNotFound));
}

TEST_F(InstallPlanTest, HyperParametersApplyFromTheNextUpdateOn) {
  ASSERT_THAT(cluster_.Install({OnDevice(Spec(1), 0)}), IsOk());
  ASSERT_THAT(Update(1, 5, 1), IsOk());
  TableSpec faster = Spec(1);
  faster.optimizer.learning_rate = 10.0f;
  ASSERT_THAT(cluster_.Install({OnDevice(faster, 0)}), IsOk());
  ASSERT_THAT(Update(1, 5, 2), IsOk());
  EXPECT_THAT(Row(1, 5), Each(-11.0f));
}

TEST_F(InstallPlanTest, RowsStayWhereTheyAreWhenThePlanPutsThemElsewhere) {
  ASSERT_THAT(cluster_.Install({OnDevice(Spec(1), 0)}), IsOk());
  ASSERT_THAT(Update(1, 5, 1), IsOk());
  const std::int64_t used = cluster_.node(0).device_used_bytes()[0];
  ASSERT_THAT(cluster_.Install({OnDevice(Spec(1), 1)}), IsOk());
  EXPECT_THAT(Row(1, 5), Each(-1.0f));
  EXPECT_THAT(cluster_.node(0).device_used_bytes(), ElementsAre(used, 0));
}

TEST_F(InstallPlanTest, ChangedShapesAreInvalidArgument) {
  ASSERT_THAT(cluster_.Install({OnDevice(Spec(1), 0)}), IsOk());
  std::vector<TableSpec> changed(3, Spec(1));
  changed[0].dtype = DType::kFloat16;
  changed[1].optimizer.kind = OptimizerKind::kAdam;
  changed[2].seed = 9;
  for (const TableSpec& spec : changed) {
    EXPECT_EQ(cluster_.Install({OnDevice(spec, 0)}).code(), Code::kInvalidArgument);
  }
}

TEST_F(InstallPlanTest, ANodeThatThePlanDoesNotKnowIsInvalidArgument) {
  const auto plan = std::make_shared<const Plan>(PlanVersion{5}, "test", cluster_.specs(),
                                                 std::vector<TablePlan>{});
  EXPECT_EQ(cluster_.node(0).InstallPlan(plan, NodeId{9}).code(), Code::kInvalidArgument);
}

TEST_F(InstallPlanTest, ADeviceThatTheNodeLacksIsInvalidArgument) {
  const auto plan = std::make_shared<const Plan>(PlanVersion{5}, "test", cluster_.specs(),
                                                 std::vector<TablePlan>{OnDevice(Spec(1), 7)});
  EXPECT_EQ(cluster_.node(0).InstallPlan(plan, kFirst).code(), Code::kInvalidArgument);
}

TEST_F(InstallPlanTest, RequestsGoOnMeanwhile) {
  ASSERT_THAT(cluster_.Install({OnDevice(Spec(1), 0)}), IsOk());
  std::atomic<bool> stop = false;
  std::atomic<int> served = 0;
  std::thread trainer([&] {
    for (std::uint64_t seq = 1; !stop; ++seq) {
      ASSERT_THAT(Update(1, 5, seq), IsOk());
      ASSERT_THAT(Lookup(1, 5), IsOk());
      ++served;
    }
  });
  TableSpec spec = Spec(1);
  for (int i = 0; i < 40; ++i) {
    spec.optimizer.learning_rate = 1.0f + i;
    std::vector<TablePlan> tables = {OnDevice(spec, 0)};
    if (i % 2 == 0) tables.push_back(OnDevice(Spec(100 + i), 1));
    ASSERT_THAT(cluster_.Install(tables), IsOk());
  }
  AwaitFor([&] { return served > 0; }, absl::Seconds(60), "the trainer is served");
  stop = true;
  trainer.join();
}

// Some count by id, some step together, some are data_parallel.
TablePlan AnyTable(std::uint32_t id) {
  TableSpec spec = Spec(id);
  if (id % 4 == 1) {
    spec.zch = ZchSpec{.buckets = 1};
    spec.row_granules = spec.column_granule_width = 0;
    spec.SetDefaults();
  }
  if (id % 4 == 2) spec.sync = SyncSpec{};
  TablePlan table = OnDevice(spec, id % 2);
  if (id % 4 == 3) table.sharding = ShardingType::kDataParallel;
  return table;
}

TEST(InstallPlanMetrics, AThousandTablesThatCameAndWentLeaveNoSeries) {
  Metrics metrics;
  LocalCluster cluster({.devices_per_node = 2, .device_bytes = 1 << 24, .metrics = &metrics});
  ASSERT_THAT(cluster.Install({OnDevice(Spec(1), 0)}), IsOk());
  const std::size_t before = SeriesCount(metrics);
  for (std::uint32_t first = 2; first < 1002; first += 100) {
    std::vector<TablePlan> tables = {OnDevice(Spec(1), 0)};
    for (std::uint32_t id = first; id < first + 100; ++id) tables.push_back(AnyTable(id));
    ASSERT_THAT(cluster.Install(std::move(tables)), IsOk());
    EXPECT_GT(SeriesCount(metrics), before + 500);
    ASSERT_THAT(cluster.Install({OnDevice(Spec(1), 0)}), IsOk());
    AwaitFor([&] { return SeriesCount(metrics) == before; }, absl::Seconds(30),
             "the series of dropped tables go");
  }
}

// Takes everything, and counts the plans.
class CountingJournal final : public Journal {
 public:
  absl::Status Append(const Decision& decision, Durability /*level*/, Done done) override {
    plans += std::holds_alternative<InstalledPlan>(decision) ? 1 : 0;
    done(absl::OkStatus());
    return absl::OkStatus();
  }
  std::uint64_t position() const override { return 1; }
  Durability LevelOf(TableDurability /*asked*/) const override { return Durability::kWritten; }
  int plans = 0;
};

// Hyper-parameters may change for ever; a copy that is so far behind gets the whole table anyway.
TEST_F(InstallPlanTest, ACopyKnowsABoundedNumberOfFormerSpecs) {
  CountingJournal journal;
  cluster_.node(0).set_journal(&journal);
  TablePlan table = OnDevice(Spec(1), 0);
  table.sharding = ShardingType::kDataParallel;
  for (std::size_t n = 1; n <= kSpecHistoryMax + 50; ++n) {
    table.spec.optimizer.learning_rate = static_cast<float>(n);
    ASSERT_THAT(cluster_.Install({table}), IsOk());
  }
  const auto taken = cluster_.node(0).images().Take([] { return absl::OkStatus(); });
  ASSERT_THAT(taken, IsOk());
  const auto& history = taken->image.tables.front().copy->history;
  EXPECT_EQ(history.size(), kSpecHistoryMax);
  EXPECT_EQ(history.back().second.optimizer.learning_rate, kSpecHistoryMax + 50);
}

// Cannot meet the others as long as `fails`: on every rank, so nobody waits for it.
class FailingCommunicator final : public Communicator {
 public:
  FailingCommunicator(std::unique_ptr<Communicator> inner, const bool& fails)
      : inner_(std::move(inner)), fails_(fails) {}

  std::uint32_t rank() const override { return inner_->rank(); }
  std::uint32_t size() const override { return inner_->size(); }
  absl::Status Barrier() override {
    return fails_ ? absl::UnavailableError("injected: no way to meet") : inner_->Barrier();
  }
  absl::Status AllReduceSum(std::span<const float> in, std::span<float> out) override {
    return inner_->AllReduceSum(in, out);
  }
  absl::Status ReduceScatterSum(std::span<const float> in, std::span<const std::size_t> counts,
                                std::span<float> out) override {
    return inner_->ReduceScatterSum(in, counts, out);
  }
  absl::Status AllGather(std::span<const float> in, std::span<const std::size_t> counts,
                         std::span<float> out) override {
    return inner_->AllGather(in, counts, out);
  }
  absl::Status AllToAll(std::span<const float> in, std::span<const std::size_t> send_counts,
                        std::span<float> out,
                        std::span<const std::size_t> receive_counts) override {
    return inner_->AllToAll(in, send_counts, out, receive_counts);
  }
  absl::Status AllReduceMax(std::int32_t in, std::int32_t& out) override {
    return inner_->AllReduceMax(in, out);
  }
  void Abort() override { inner_->Abort(); }

 private:
  const std::unique_ptr<Communicator> inner_;
  const bool& fails_;  // Not owned; outlives this object.
};

TEST_F(InstallPlanTest, ABarrierThatFailsLeavesThePlanUninstalledAndItIsTakenTheNextTime) {
  CountingJournal journal;
  bool fails = false;
  auto& node = static_cast<ShardNodeImpl&>(cluster_.node(0));
  for (const std::uint32_t device : {0, 1}) {
    std::unique_ptr<Communicator>& way = node.device(device).communicator;
    way = std::make_unique<FailingCommunicator>(std::move(way), fails);
  }
  node.set_journal(&journal);
  ASSERT_THAT(cluster_.Install({OnDevice(Spec(1), 0)}), IsOk());
  ASSERT_THAT(Update(1, 5, 1), IsOk());
  const PlanVersion before = node.plan()->version();
  ASSERT_EQ(journal.plans, 1);

  fails = true;
  const std::vector<TablePlan> wanted = {OnDevice(Spec(1), 0), OnDevice(Spec(2), 1)};
  const absl::Status failed = cluster_.Install(wanted);
  EXPECT_EQ(failed.code(), Code::kUnavailable) << failed;
  EXPECT_THAT(std::string(failed.message()), HasSubstr("no way to meet"));
  EXPECT_EQ(node.plan()->version(), before);
  EXPECT_EQ(journal.plans, 1);
  EXPECT_THAT(Lookup(2, 5), StatusIs(Code::kNotFound));

  fails = false;
  ASSERT_THAT(cluster_.Install(wanted), IsOk());
  EXPECT_GT(node.plan()->version(), before);
  EXPECT_EQ(journal.plans, 2);
  EXPECT_THAT(Row(1, 5), Each(-1.0f));
  EXPECT_THAT(Row(2, 5), Each(0.0f));
}

}  // namespace
}  // namespace embla::install_plan_test
