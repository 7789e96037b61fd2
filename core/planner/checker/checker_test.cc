// Plans of the solver are accepted; a plan that was tampered with in any field is not.
#include "core/planner/checker/checker.h"

#include <cstdio>
#include <random>
#include <string>
#include <utility>

#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "core/planner/problem/machine.h"
#include "core/planner/solver/solve.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::planner {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
// Little exhaustive search: these tests also run under sanitizers.
constexpr SolveOptions kQuick{.search_operations_max = 200'000};

Topology Hosts(int hosts, int devices, std::int64_t device_bytes) {
  Topology topology;
  for (int h = 0; h < hosts; ++h) {
    Host host{"h" + std::to_string(h), {}, 4096 * kMiB, 0};
    host.devices.assign(devices, Device{device_bytes, 1.0, ""});
    topology.hosts.push_back(host);
  }
  return topology;
}

// Tables of varied shape that fill about `mib` MiB.
Problem Random(std::uint32_t seed, int tables, Topology topology, double mib) {
  std::mt19937 random(seed);
  Problem problem;
  problem.topology = std::move(topology);
  problem.local_batch = 64;
  problem.reservation.fraction = 0;
  for (int t = 0; t < tables; ++t) {
    Table table;
    table.name = "t" + std::to_string(t);
    table.dim = 16u << (random() % 5);
    const double share = mib / tables * (0.25 + 1.5 * (random() % 1000) / 1000.0);
    table.rows = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(share * static_cast<double>(kMiB) / (4.0 * table.dim)));
    table.lookups_per_sample = 1 + random() % 40;
    problem.tables.push_back(table);
  }
  return problem;
}

std::string Refusal(const Planned& planned) {
  const absl::StatusOr<CheckReport> report = Check(planned.problem, planned.solution);
  if (report.ok()) return "accepted";
  EXPECT_EQ(report.status().code(), absl::StatusCode::kFailedPrecondition) << report.status();
  return Message(report.status());
}

class CheckerTest : public ::testing::Test {
 protected:
  // A plan whose tables need more memory than the devices have, so that it has a price.
  void SetUp() override {
    Problem problem = Random(7, 40, Hosts(2, 4, 120 * kMiB), 1400);
    for (Table& table : problem.tables) {
      table.rules.types = {ShardingType::kTableWise, ShardingType::kColumnWise,
                           ShardingType::kTableRowWise, ShardingType::kRowWise};
    }
    absl::StatusOr<Planned> planned = Solve(std::move(problem), kQuick);
    ASSERT_THAT(planned, IsOk());
    planned_ = *std::move(planned);
    ASSERT_EQ(Refusal(planned_), "accepted");
    ASSERT_GT(planned_.solution.certificate.price[0], 0);
  }

  // Some table that lies on single devices.
  std::size_t TableOnDevices() const {
    std::size_t t = 0;
    while (planned_.solution.choices[t].placement != Placement::kShards) ++t;
    return t;
  }

  Planned planned_;
};

TEST_F(CheckerTest, RaisedBoundIsRefused) {
  Certificate& certificate = planned_.solution.certificate;
  certificate.bound += certificate.bound / 100;
  planned_.solution.lower_bound = certificate.bound;
  EXPECT_THAT(Refusal(planned_), HasSubstr("do not prove the bound"));
}

TEST_F(CheckerTest, LowerBoundAboveTheCertificateIsRefused) {
  ++planned_.solution.lower_bound;
  EXPECT_THAT(Refusal(planned_), HasSubstr("states a lower bound"));
}

TEST_F(CheckerTest, LowerBoundAboveThePlanIsRefused) {
  planned_.solution.search_bound = planned_.solution.lower_bound = planned_.solution.max_load + 1;
  EXPECT_THAT(Refusal(planned_), HasSubstr("above the plan's own max load"));
}

TEST_F(CheckerTest, BoundOfASearchIsReportedAsNotChecked) {
  planned_.solution.search_bound = planned_.solution.lower_bound = planned_.solution.max_load;
  const absl::StatusOr<CheckReport> report = Check(planned_.problem, planned_.solution);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->claimed_search_bound, planned_.solution.max_load);
  EXPECT_EQ(report->proven_bound, planned_.solution.certificate.bound);
}

TEST_F(CheckerTest, ChangedWeightIsRefused) {
  planned_.solution.certificate.weight[3] *= 2;
  EXPECT_THAT(Refusal(planned_), HasSubstr("do not prove the bound"));
}

TEST_F(CheckerTest, WeightOutOfRangeIsRefused) {
  planned_.solution.certificate.weight[3] = -1;
  EXPECT_THAT(Refusal(planned_), HasSubstr("weight of device 3 is out of range"));
  planned_.solution.certificate.weight[3] = INT64_MAX;
  EXPECT_THAT(Refusal(planned_), HasSubstr("weight of device 3 is out of range"));
}

TEST_F(CheckerTest, MissingWeightIsRefused) {
  planned_.solution.certificate.weight.pop_back();
  EXPECT_THAT(Refusal(planned_), HasSubstr("7 weights for 8 devices"));
}

TEST_F(CheckerTest, ChangedPriceIsRefused) {
  for (const std::int64_t factor : {0, 3}) {
    Planned tampered = planned_;
    tampered.solution.certificate.price[0] *= factor;
    EXPECT_THAT(Refusal(tampered), HasSubstr("do not prove the bound")) << factor;
  }
}

TEST_F(CheckerTest, PriceThatWouldOverflowIsRefused) {
  planned_.solution.certificate.price[0] = INT64_MAX;
  EXPECT_THAT(Refusal(planned_), HasSubstr("price of tier device is out of range"));
  planned_.solution.certificate.price[0] = -5;
  EXPECT_THAT(Refusal(planned_), HasSubstr("price of tier device is out of range"));
}

TEST_F(CheckerTest, MovedShardIsRefused) {
  Choice& choice = planned_.solution.choices[TableOnDevices()];
  choice.targets[0] = (choice.targets[0] + 1) % 8;
  EXPECT_THAT(Refusal(planned_), HasSubstr("its shards make"));
}

TEST_F(CheckerTest, ShardOnADeviceThatDoesNotExistIsRefused) {
  planned_.solution.choices[TableOnDevices()].targets[0] = 8;
  EXPECT_THAT(Refusal(planned_), HasSubstr("no device has number 8"));
}

TEST_F(CheckerTest, UnderstatedLoadIsRefused) {
  Planned tampered = planned_;
  tampered.solution.devices[2].load -= 1;
  EXPECT_THAT(Refusal(tampered), HasSubstr("device h0:2: states a load of"));
  tampered = planned_;
  tampered.solution.max_load -= 1;
  EXPECT_THAT(Refusal(tampered), HasSubstr("states a max load of"));
}

TEST_F(CheckerTest, UnderstatedMemoryIsRefused) {
  Planned tampered = planned_;
  tampered.solution.devices[2].bytes -= 1;
  EXPECT_THAT(Refusal(tampered), HasSubstr("device h0:2: states"));
  tampered = planned_;
  tampered.solution.hosts[1].bytes[1] += 1;
  EXPECT_THAT(Refusal(tampered), HasSubstr("host h1: states"));
}

TEST_F(CheckerTest, MissingTableIsRefused) {
  planned_.solution.choices.pop_back();
  EXPECT_THAT(Refusal(planned_), HasSubstr("choices for 39 tables, there are 40"));
}

TEST_F(CheckerTest, OverfullMemoryIsRefused) {
  for (Host& host : planned_.problem.topology.hosts) {
    for (Device& device : host.devices) device.memory_bytes = 40 * kMiB;
  }
  EXPECT_THAT(Refusal(planned_), HasSubstr("device memory is overfull"));
}

TEST_F(CheckerTest, ColumnsCoveredTwiceAreRefused) {
  const std::size_t t = TableOnDevices();
  Choice& choice = planned_.solution.choices[t];
  ++choice.cut.column_blocks;
  choice.targets.push_back(0);
  EXPECT_THAT(Refusal(planned_), HasSubstr("table " + planned_.problem.tables[t].name));
  EXPECT_THAT(Refusal(planned_), HasSubstr("do not cover dim"));
}

TEST_F(CheckerTest, RowsCoveredTwiceAreRefused) {
  Choice& choice = planned_.solution.choices[TableOnDevices()];
  choice.cut.row_blocks = 2;
  EXPECT_THAT(Refusal(planned_), HasSubstr("do not allow"));
}

TEST_F(CheckerTest, ForbiddenTypeKernelAndDeviceAreRefused) {
  const std::size_t t = TableOnDevices();
  const Choice choice = planned_.solution.choices[t];
  Planned tampered = planned_;
  tampered.problem.tables[t].rules.types = {ShardingType::kRowWise};
  EXPECT_THAT(Refusal(tampered), HasSubstr("its rules do not allow"));
  tampered = planned_;
  tampered.problem.tables[t].rules.kernels = {Kernel::kSsd};
  EXPECT_THAT(Refusal(tampered), HasSubstr("its rules do not allow"));
  tampered = planned_;
  tampered.problem.tables[t].rules.types = {choice.cut.type};
  tampered.problem.tables[t].rules.hosts = {choice.targets[0] < 4 ? "h1" : "h0"};
  EXPECT_THAT(Refusal(tampered), HasSubstr("its rules forbid device"));
}

TEST_F(CheckerTest, ShardsThatMeetAgainstTheRuleAreRefused) {
  Problem problem = Random(3, 6, Hosts(2, 2, 400 * kMiB), 50);
  problem.tables[0].dim = 256;
  problem.tables[0].rules.types = {ShardingType::kColumnWise};
  problem.tables[0].rules.spread = Spread::kDevices;
  absl::StatusOr<Planned> planned = Solve(std::move(problem), kQuick);
  ASSERT_THAT(planned, IsOk());
  ASSERT_EQ(Refusal(*planned), "accepted");
  Choice& choice = planned->solution.choices[0];
  ASSERT_EQ(choice.targets.size(), 2u);
  choice.targets[0] = choice.targets[1];
  EXPECT_THAT(Refusal(*planned), HasSubstr("rule spread forbids that"));
}

TEST(CheckerAccepts, PlansOfManyShapes) {
  int checked = 0;
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Problem problem = Random(seed, 2 + seed % 30, Hosts(1 + seed % 3, 1 + seed % 4, 512 * kMiB),
                             seed % 2 == 0 ? 100 : 350);
    problem.cost = seed % 5 == 0 ? CostKind::kEmbla : CostKind::kTorchRec;
    problem.all_widths = seed % 3 == 0;
    problem.min_partition = seed % 4 == 0 ? 16 : 0;
    if (seed % 7 == 0) problem.topology.hosts[0].devices[0].slowdown = 1.7;
    if (seed % 6 == 0) problem.tables[0].rules.pin = "h0:0";
    if (seed % 4 == 1) problem.tables[1].rules.hosts = {"h0"};
    const absl::StatusOr<Planned> planned = Solve(std::move(problem), kQuick);
    if (!planned.ok()) {
      EXPECT_EQ(planned.status().code(), absl::StatusCode::kResourceExhausted) << planned.status();
      continue;
    }
    EXPECT_EQ(Refusal(*planned), "accepted");
    ++checked;
  }
  EXPECT_GT(checked, 40);
}

// No change of one number of a certificate makes it prove more than some plan needs.
TEST(CheckerRefuses, EveryRandomCertificateThatClaimsMoreThanThePlan) {
  std::mt19937_64 random(embla::testing::TestSeed());
  absl::StatusOr<Planned> planned = Solve(Random(11, 20, Hosts(2, 2, 200 * kMiB), 500), kQuick);
  ASSERT_THAT(planned, IsOk());
  for (int round = 0; round < 300; ++round) {
    Solution solution = planned->solution;
    Certificate& certificate = solution.certificate;
    certificate.bound = solution.max_load + 1 + static_cast<Ticks>(random() % 1000);
    for (std::int64_t& weight : certificate.weight) weight = random() >> (24 + random() % 40);
    certificate.host_weight = static_cast<std::int64_t>(random() >> (24 + random() % 40));
    for (std::int64_t& price : certificate.price) price = random() >> (22 + random() % 42);
    solution.lower_bound = certificate.bound;
    EXPECT_THAT(Check(planned->problem, solution), Not(IsOk())) << round;
  }
}

TEST(CheckerAccepts, NoTables) {
  Problem problem;
  problem.topology = Hosts(1, 2, kMiB);
  const absl::StatusOr<Planned> planned = Solve(std::move(problem), kQuick);
  ASSERT_THAT(planned, IsOk());
  EXPECT_EQ(Refusal(*planned), "accepted");
}

}  // namespace
}  // namespace embla::planner
