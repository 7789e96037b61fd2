#include "core/planner/solver/level.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "core/base/testing/status_matchers.h"
#include "core/planner/checker/checker.h"
#include "core/planner/solver/solve.h"

namespace embla::planner {
namespace {

using ::embla::testing::IsOk;

// Two hosts of four devices whose networks are what a plan waits for.
Problem NetworkBound(int tables) {
  Problem problem;
  problem.cost = CostKind::kEmbla;
  for (const char* const name : {"a", "b"}) {
    Host host{name, {}, std::int64_t{1} << 40, 0};
    host.devices.assign(4, Device{std::int64_t{1} << 34, 1.0, ""});
    problem.topology.hosts.push_back(host);
  }
  problem.topology.bandwidth.inter_host = 1;
  std::mt19937 random(20260103);
  for (int t = 0; t < tables; ++t) {
    Table table;
    table.name = "t" + std::to_string(t);
    table.rows = 1000 + random() % 100'000;
    table.dim = 16 * (1 + random() % 8);
    table.lookups_per_sample = 1 + random() % 20;
    table.rules.types = {ShardingType::kTableWise};
    table.rules.kernels = {Kernel::kDevice};
    problem.tables.push_back(table);
  }
  return problem;
}

TEST(LevelHosts, DevicesOfAHostShareTheWorkWhenTheNetworkIsTheLimit) {
  const absl::StatusOr<Planned> planned = Solve(NetworkBound(120));
  ASSERT_THAT(planned, IsOk());
  const Solution& solution = planned->solution;
  EXPECT_THAT(Check(planned->problem, solution), IsOk());
  for (std::size_t host = 0; host < 2; ++host) {
    EXPECT_GT(solution.hosts[host].network_load, solution.devices[4 * host].load);
    Ticks most = 0, sum = 0;
    for (std::size_t d = 4 * host; d < 4 * host + 4; ++d) {
      most = std::max(most, solution.devices[d].load);
      sum += solution.devices[d].load;
    }
    EXPECT_LE(most, sum / 4 + sum / 20) << "host " << host;
  }
}

TEST(LevelHosts, AllowedDevicesStayAllowed) {
  Problem problem = NetworkBound(40);
  for (Table& table : problem.tables) {
    if (table.name.back() % 2 == 0) table.rules.devices = {"a:0", "b:1"};
  }
  const absl::StatusOr<Planned> planned = Solve(problem);
  ASSERT_THAT(planned, IsOk());
  const absl::StatusOr<CheckReport> report = Check(planned->problem, planned->solution);
  EXPECT_THAT(report, IsOk());
}

}  // namespace
}  // namespace embla::planner
