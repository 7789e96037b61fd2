#include "core/planner/solver/solve.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/planner/problem/machine.h"
#include "core/planner/solver/planner_inputs_test_support.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::planner {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;

std::string HashOf(const Planned& planned) { return PlanHash(planned.problem, planned.solution); }

std::string HashOf(const Problem& problem) {
  // A short search: what is asked here is not how good the plan is.
  const auto planned = Solve(problem, {.search_operations_max = 2'000'000});
  return planned.ok() ? HashOf(*planned) : std::string(planned.status().message());
}

double GapPercent(const Solution& solution) {
  return 100.0 * (static_cast<double>(solution.max_load) /
                      static_cast<double>(std::max<Ticks>(1, solution.lower_bound)) -
                  1);
}

Table TableOf(std::string name, std::int64_t rows, std::uint32_t dim, double pooling = 10) {
  Table table;
  table.name = std::move(name);
  table.rows = rows;
  table.dim = dim;
  table.lookups_per_sample = pooling;
  return table;
}

Problem SmallProblem() {
  Problem problem;
  problem.topology = HostsOf(2, 2, std::int64_t{1} << 30);
  problem.reservation.fraction = 0;
  for (int t = 0; t < 6; ++t) {
    problem.tables.push_back(TableOf("t" + std::to_string(t), 10'000 * (t + 1), 64, t + 1));
  }
  return problem;
}

std::set<std::uint32_t> DevicesOf(const Planned& planned, std::uint32_t table) {
  const Choice& choice = planned.solution.choices[table];
  EXPECT_EQ(choice.placement, Placement::kShards);
  return {choice.targets.begin(), choice.targets.end()};
}

// --- The same plan, whatever the order, run or compiler ---

TEST(SolveDeterminism, SamePlanInAHundredRunsAndAnyOrder) {
  std::mt19937_64 random(7);
  for (Problem problem : {DrawnProblem(11, 40, 2, 4), DrawnProblem(12, 300, 2, 4, 60 << 20)}) {
    const std::string hash = HashOf(problem);
    for (int run = 0; run < 50; ++run) {
      std::shuffle(problem.tables.begin(), problem.tables.end(), random);
      std::shuffle(problem.topology.hosts.begin(), problem.topology.hosts.end(), random);
      ASSERT_EQ(HashOf(problem), hash) << "run " << run;
    }
  }
}

// Equal for Debug and Release, GCC and Clang, with and without sanitizers: change them only with
// the algorithm.
TEST(SolveDeterminism, GoldenHashes) {
  EXPECT_EQ(HashOf(SmallProblem()).substr(0, 16), "83418afa497b3479");
  EXPECT_EQ(HashOf(DrawnProblem(21, 200, 2, 8)).substr(0, 16), "81726538cb2aa1f2");
  EXPECT_EQ(HashOf(DrawnProblem(22, 200, 2, 8, 80 << 20)).substr(0, 16), "ccae59d8a932ab81");
  Problem uneven = DrawnProblem(23, 100, 2, 4);
  uneven.cost = CostKind::kEmbla;
  uneven.topology.hosts[1].devices[0].slowdown = 1.7;
  EXPECT_EQ(HashOf(uneven).substr(0, 16), "2eb5f9bf646c8637");
}

TEST(SolveDeterminism, DigestNamesTheInputThatChanged) {
  const Problem before = Canonical(SmallProblem());
  const auto changed = [&](const Problem& after) {
    return FirstDifference(DigestOf(before), DigestOf(Canonical(after)));
  };
  Problem after = SmallProblem();
  std::reverse(after.tables.begin(), after.tables.end());
  EXPECT_EQ(changed(after), "");
  after.tables[0].rows += 1;
  EXPECT_EQ(changed(after), "tables");
  after = SmallProblem();
  after.topology.hosts[1].devices[0].slowdown = 1.1;
  EXPECT_EQ(changed(after), "topology");
  after = SmallProblem();
  after.tables[2].rules.pin = "h0000:1";
  EXPECT_EQ(changed(after), "rules");
  after = SmallProblem();
  after.local_batch = 1024;
  EXPECT_EQ(changed(after), "options");
}

// --- Errors name what to change ---

TEST(SolveErrors, InfeasibleNamesTierBytesShortAndTables) {
  Problem problem = SmallProblem();
  problem.local_batch = 1;
  problem.topology = HostsOf(2, 2, 10 << 20);
  for (Table& table : problem.tables) {
    table.rules.kernels = {Kernel::kDevice};
    table.rules.types = {ShardingType::kTableWise, ShardingType::kRowWise};
  }
  // 210,000 rows of 256 bytes on 40 MiB.
  const auto planned = Solve(problem);
  ASSERT_EQ(planned.status().code(), absl::StatusCode::kResourceExhausted);
  const std::string message(planned.status().message());
  EXPECT_THAT(message, HasSubstr("of device memory short (there are 40.0 MiB)"));
  EXPECT_THAT(message, HasSubstr("most is needed by t5 (14.7 MiB)"));
  EXPECT_THAT(message, HasSubstr(", t4 (12"));
}

TEST(SolveErrors, InfeasibleTiersTogetherNameBoth) {
  Problem problem = SmallProblem();
  problem.topology = HostsOf(1, 2, 8 << 20);
  problem.topology.hosts[0].memory_bytes = 16 << 20;
  problem.local_batch = 1;
  const auto planned = Solve(problem);
  ASSERT_EQ(planned.status().code(), absl::StatusCode::kResourceExhausted);
  const std::string message(planned.status().message());
  EXPECT_THAT(message, HasSubstr("of device memory short"));
  EXPECT_THAT(message, HasSubstr("of host memory short"));
}

TEST(SolveErrors, InfeasibleScopeNamesItsDevices) {
  Problem problem = SmallProblem();
  problem.topology = HostsOf(2, 2, 30 << 20);
  problem.local_batch = 1;
  for (Table& table : problem.tables) {
    table.rules.kernels = {Kernel::kDevice};
    table.rules.pin = "h0001:1";
  }
  const auto planned = Solve(problem);
  ASSERT_EQ(planned.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(planned.status().message()), HasSubstr("h0001:1"));
}

TEST(SolveErrors, TableLargerThanAnyDeviceIsNamed) {
  Problem problem = SmallProblem();
  problem.tables.push_back(TableOf("huge", 100'000'000, 64));
  problem.tables.back().rules.types = {ShardingType::kTableWise};
  problem.tables.back().rules.kernels = {Kernel::kDevice};
  const auto planned = Solve(problem);
  ASSERT_EQ(planned.status().code(), absl::StatusCode::kResourceExhausted);
  const std::string message(planned.status().message());
  EXPECT_THAT(message, HasSubstr("table huge: its smallest shard needs 23.8 GiB"));
  EXPECT_THAT(message, HasSubstr("the largest allowed device has 1.00 GiB"));
}

TEST(SolveErrors, ContradictoryRulesNameTableAndRule) {
  const auto error = [](auto&& change) {
    Problem problem = SmallProblem();
    change(problem.tables[3].rules);
    const auto planned = Solve(problem);
    EXPECT_EQ(planned.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(planned.status().message());
  };
  EXPECT_THAT(error([](TableRules& r) { r.pin = "h9:0"; }), HasSubstr("table t3: rule pin"));
  EXPECT_THAT(error([](TableRules& r) {
                r.pin = "h0000:0";
                r.hosts = {"h0001"};
              }),
              HasSubstr("table t3: rules hosts and pin leave no device"));
  EXPECT_THAT(error([](TableRules& r) { r.groups = {"fast"}; }),
              HasSubstr("table t3: rule groups: no group 'fast'"));
  EXPECT_THAT(error([](TableRules& r) {
                r.types = {ShardingType::kDataParallel};
                r.kernels = {Kernel::kHost};
              }),
              HasSubstr("table t3: rule types allows data_parallel only"));
  EXPECT_THAT(error([](TableRules& r) {
                r.types = {ShardingType::kTableRowWise};
                r.devices = {"h0000:0"};
              }),
              HasSubstr("table t3: rules types, kernels and spread leave no way to cut it"));
}

TEST(SolveErrors, BadNumbersNameTableOrHost) {
  Problem problem = SmallProblem();
  problem.tables[1].rows = 0;
  EXPECT_THAT(std::string(Solve(problem).status().message()), HasSubstr("table t1: rows 0"));
  problem = SmallProblem();
  problem.topology.hosts[1].devices.clear();
  EXPECT_THAT(std::string(Solve(problem).status().message()), HasSubstr("host h0001"));
  problem = SmallProblem();
  problem.tables[1].name = "t0";
  EXPECT_THAT(std::string(Solve(problem).status().message()), HasSubstr("'t0'"));
}

// --- Defined results at the edges ---

TEST(SolveEdges, NoTables) {
  Problem problem = SmallProblem();
  problem.tables.clear();
  const auto planned = Solve(problem);
  ASSERT_THAT(planned, IsOk());
  EXPECT_EQ(planned->solution.max_load, 0);
  EXPECT_EQ(planned->solution.lower_bound, 0);
  EXPECT_EQ(planned->solution.devices.size(), 4u);
}

TEST(SolveEdges, OneDevice) {
  Problem problem = SmallProblem();
  problem.topology = HostsOf(1, 1, std::int64_t{1} << 30);
  const auto planned = Solve(problem);
  ASSERT_THAT(planned, IsOk());
  EXPECT_EQ(planned->solution.max_load, planned->solution.lower_bound);
}

TEST(SolveEdges, FewerTablesThanDevicesAndFewerRowsThanDevices) {
  Problem problem = SmallProblem();
  problem.tables = {TableOf("tiny", 2, 4), TableOf("other", 3, 4)};
  for (Table& table : problem.tables) {
    table.rules.types = {ShardingType::kRowWise, ShardingType::kTableWise};
  }
  const auto planned = Solve(problem);
  ASSERT_THAT(planned, IsOk());
  EXPECT_LE(planned->solution.lower_bound, planned->solution.max_load);
  EXPECT_LE(GapPercent(planned->solution), 0.06);
}

TEST(SolveEdges, PoolingZeroIsNoWorkButBytes) {
  Problem problem = SmallProblem();
  for (Table& table : problem.tables) {
    table.lookups_per_sample = 0;
    table.bags_per_sample = 0;
    table.rules.types = {ShardingType::kTableWise};
    table.rules.kernels = {Kernel::kDevice};
  }
  const auto planned = Solve(problem);
  ASSERT_THAT(planned, IsOk());
  EXPECT_EQ(planned->solution.max_load, 0);
  std::int64_t bytes = 0;
  for (const DeviceUse& use : planned->solution.devices) bytes += use.bytes;
  EXPECT_EQ(bytes, std::int64_t{210'000} * 256);
}

TEST(SolveEdges, TableLargerThanADeviceIsCut) {
  Problem problem = SmallProblem();
  problem.tables = {TableOf("large", 8'000'000, 64)};  // 2 GiB on devices of 1 GiB.
  problem.tables[0].rules.kernels = {Kernel::kDevice};
  const auto planned = Solve(problem);
  ASSERT_THAT(planned, IsOk());
  EXPECT_GE(planned->solution.choices[0].cut.row_blocks, 2u);
}

// --- Rules ---

TEST(SolveRules, PinsGroupsKernelsAndDistanceHold) {
  Problem problem = SmallProblem();
  problem.topology.hosts[1].devices[0].group = "fast";
  problem.min_partition = 16;
  problem.tables[0].rules.pin = "h0001:1";
  problem.tables[1].rules.groups = {"fast"};
  problem.tables[2].rules.types = {ShardingType::kColumnWise};
  problem.tables[2].rules.spread = Spread::kDevices;
  problem.tables[3].rules.types = {ShardingType::kColumnWise};
  problem.tables[3].rules.min_partition = 32;
  problem.tables[3].rules.spread = Spread::kHosts;
  problem.tables[4].rules.kernels = {Kernel::kHost};
  const auto planned = Solve(problem);
  ASSERT_THAT(planned, IsOk());
  EXPECT_EQ(DevicesOf(*planned, 0), (std::set<std::uint32_t>{3}));
  EXPECT_EQ(DevicesOf(*planned, 1), (std::set<std::uint32_t>{2}));
  EXPECT_EQ(DevicesOf(*planned, 2).size(), 4u);
  const auto apart = planned->solution.choices[3].targets;
  ASSERT_EQ(apart.size(), 2u);
  EXPECT_NE(apart[0] / 2, apart[1] / 2);
  EXPECT_EQ(planned->solution.choices[4].cut.kernel, Kernel::kHost);
}

TEST(SolveRules, SlowDevicesGetLess) {
  Problem problem = DrawnProblem(31, 400, 2, 4);
  problem.topology.hosts[1].devices[3].slowdown = 2;
  const auto planned = Solve(problem);
  ASSERT_THAT(planned, IsOk());
  EXPECT_LE(GapPercent(planned->solution), 0.5);
}

TEST(SolveRules, EveryShardingTypeCanBeAskedFor) {
  for (int type = 1; type <= 7; ++type) {
    Problem problem = SmallProblem();
    for (Table& table : problem.tables) table.rules.types = {static_cast<ShardingType>(type)};
    const auto planned = Solve(problem);
    ASSERT_THAT(planned, IsOk()) << type;
    EXPECT_EQ(static_cast<int>(planned->solution.choices[0].cut.type), type);
    EXPECT_LE(planned->solution.lower_bound, planned->solution.max_load);
  }
}

TEST(SolveRules, ReservationTakesMemoryAway) {
  Problem problem = SmallProblem();
  problem.local_batch = 1;
  problem.topology = HostsOf(2, 2, 20 << 20);
  for (Table& table : problem.tables) {
    table.rules.types = {ShardingType::kTableWise, ShardingType::kRowWise};
    table.rules.kernels = {Kernel::kDevice};
  }
  EXPECT_THAT(Solve(problem), IsOk());
  problem.reservation.fraction = 0.5;
  EXPECT_EQ(Solve(problem).status().code(), absl::StatusCode::kResourceExhausted);
  problem.reservation = {Reservation::Kind::kHeuristical, 0, 2 << 20};
  EXPECT_EQ(Solve(problem).status().code(), absl::StatusCode::kResourceExhausted);
}

// --- Replica groups ---

TEST(SolveReplicas, GroupsShareTheDevicesOfEveryHost) {
  Problem problem = DrawnProblem(41, 100, 2, 8);
  problem.replicas = 4;
  const auto planned = Solve(problem);
  ASSERT_THAT(planned, IsOk());
  EXPECT_EQ(planned->replicas, 4u);
  EXPECT_EQ(planned->problem.replicas, 4u);
  EXPECT_EQ(planned->solution.devices.size(), 4u);
  EXPECT_EQ(planned->problem.topology.hosts[0].memory_bytes,
            problem.topology.hosts[0].memory_bytes / 4);
}

TEST(SolveReplicas, BestNumberOfGroupsIsNoWorseThanAnyAskedFor) {
  Problem problem = DrawnProblem(42, 60, 2, 4);
  problem.sync_period_steps = 100;
  problem.replicas = 0;
  const auto best = Solve(problem);
  ASSERT_THAT(best, IsOk());
  Ticks least = kTicksMax;
  for (const std::uint32_t replicas : {1u, 2u, 4u}) {
    problem.replicas = replicas;
    const auto planned = Solve(problem);
    ASSERT_THAT(planned, IsOk());
    least = std::min(least, planned->solution.max_load);
    if (replicas == best->replicas) {
      EXPECT_EQ(HashOf(*planned), HashOf(*best));
    }
  }
  EXPECT_EQ(best->solution.max_load, least);
}

TEST(SolveReplicas, NumberMustDivideTheDevices) {
  Problem problem = SmallProblem();
  problem.replicas = 3;
  EXPECT_THAT(std::string(Solve(problem).status().message()),
              HasSubstr("replicas 3: host h0000 has 2 devices"));
}

// --- Quality ---

TEST(SolveQuality, MoreMemoryNeverRaisesTheBound) {
  for (const std::uint64_t seed : {51, 52, 53}) {
    Ticks before = kTicksMax;
    for (std::int64_t mib = 40; mib <= 20'000; mib = mib * 4 / 3) {
      const auto planned = Solve(DrawnProblem(seed, 120, 2, 4, mib << 20));
      if (!planned.ok()) {
        EXPECT_EQ(before, kTicksMax) << "less memory was enough";
        continue;
      }
      EXPECT_LE(planned->solution.certificate.bound, before) << mib;
      before = planned->solution.certificate.bound;
    }
    EXPECT_LT(before, kTicksMax);
  }
}

TEST(SolveQuality, FreshInputsAreWithinTheGoals) {
  for (const std::uint64_t seed : {61, 62, 63}) {
    Problem problem = DrawnProblem(seed, 5000, 8, 8);
    const auto loose = Solve(problem);
    ASSERT_THAT(loose, IsOk());
    EXPECT_LE(GapPercent(loose->solution), 0.5) << "seed " << seed;
    std::int64_t bytes = 0;
    for (const DeviceUse& use : loose->solution.devices) bytes += use.bytes;
    for (const int percent : {90, 75, 60}) {
      problem.topology = HostsOf(8, 8, bytes / 64 * percent / 100);
      const auto tight = Solve(problem);
      ASSERT_THAT(tight, IsOk());
      EXPECT_LE(GapPercent(tight->solution), 2.0) << "seed " << seed << ", " << percent << " %";
    }
  }
}

// The given scenarios: what each may cost at most, against the reference of scenarios.json.
class SolveScenarios : public ::testing::TestWithParam<const char*> {};

TEST_P(SolveScenarios, AreWithinTheGoalsAndBelowTorchRec) {
  const auto folder = InputFolder();
  if (!folder) GTEST_SKIP() << "EMBLA_DATA_DIR is not set";
  std::ifstream in(*folder + "scenarios.json");
  const nlohmann::json document = nlohmann::json::parse(in);
  for (const nlohmann::json& scenario : document["scenarios"]) {
    if (scenario["name"] != GetParam()) continue;
    Problem problem;
    problem.tables = ReadTables(*folder + scenario["input"].get<std::string>());
    problem.reservation.fraction = 0;
    problem.local_batch = scenario["local_batch"];
    for (Table& table : problem.tables) {
      for (const std::string type : scenario["sharding_types"]) {
        table.rules.types.push_back(*FromName<ShardingType>(type));
      }
    }
    problem.topology =
        HostsOf(scenario["hosts"], scenario["devices_per_host"], kScenarioDeviceBytes);
    const auto planned = Solve(problem);
    ASSERT_THAT(planned, IsOk());
    const nlohmann::json& reference = scenario["reference"];
    const double load = MsFromTicks(planned->solution.max_load);
    EXPECT_LE(load, reference["torchrec_planner_max_ms"].get<double>() * 1.00001);
    EXPECT_LE(load, reference["prototype_max_ms"].get<double>() * 1.001);
    EXPECT_LE(GapPercent(planned->solution), 0.5);
    return;
  }
  FAIL() << "no such scenario";
}

INSTANTIATE_TEST_SUITE_P(Given, SolveScenarios,
                         ::testing::Values("seed500_8_all", "seed500_8_mp", "seed500_16_mp",
                                           "criteo_8_mp", "criteo_8_all", "criteo_16_all",
                                           "criteo_64_mp", "meta856_16_all", "meta856_16_mp",
                                           "meta856_64_mp", "meta856_128_mp", "pl10k_128_all",
                                           "pl10k_128_mp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace embla::planner
