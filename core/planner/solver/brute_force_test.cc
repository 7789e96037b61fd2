// bound <= optimum <= plan, on random tiny problems. The optimum comes from trying every cut at
// every place, with prices from CostModel and with nothing of the solver's code.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/planner/problem/cost_model.h"
#include "core/planner/problem/machine.h"
#include "core/planner/solver/solve.h"
#include "gtest/gtest.h"

namespace embla::planner {
namespace {

using ::embla::testing::IsOk;

using Random = std::mt19937_64;

std::int64_t Between(Random& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}
bool OneIn(Random& random, int n) { return Between(random, 1, n) == 1; }

Topology RandomTopology(Random& random) {
  Topology topology;
  const int hosts = static_cast<int>(Between(random, 1, 2));
  int left = 4;
  for (int h = 0; h < hosts; ++h) {
    Host host;
    host.name = "h" + std::to_string(h);
    const int most = hosts == 1 ? 4 : h == 0 ? 3 : left;
    const int devices = static_cast<int>(Between(random, hosts == 1 ? 2 : 1, most));
    left -= devices;
    for (int d = 0; d < devices; ++d) {
      Device device;
      device.slowdown =
          OneIn(random, 3) ? 1.0 + 0.5 * static_cast<double>(Between(random, 0, 2)) : 1;
      device.group = OneIn(random, 2) ? "a" : "b";
      host.devices.push_back(device);
    }
    topology.hosts.push_back(host);
  }
  return topology;
}

TableRules RandomRules(Random& random, const Topology& topology) {
  TableRules rules;
  static constexpr ShardingType kTypes[] = {
      ShardingType::kDataParallel, ShardingType::kTableWise,    ShardingType::kColumnWise,
      ShardingType::kRowWise,      ShardingType::kTableRowWise, ShardingType::kTableColumnWise,
      ShardingType::kGridShard};
  if (OneIn(random, 2)) {
    for (const ShardingType type : kTypes) {
      if (OneIn(random, 2)) rules.types.push_back(type);
    }
  }
  if (OneIn(random, 3)) {
    for (int k = 0; k < kKernels; ++k) {
      if (OneIn(random, 2)) rules.kernels.push_back(static_cast<Kernel>(k));
    }
  }
  const Host& host = topology.hosts[random() % topology.hosts.size()];
  const std::string device = host.name + ":" + std::to_string(random() % host.devices.size());
  if (OneIn(random, 6)) rules.hosts = {host.name};
  if (OneIn(random, 6)) rules.pin = device;
  if (OneIn(random, 8)) rules.devices = {device, topology.hosts[0].name + ":0"};
  if (OneIn(random, 8)) rules.groups = {host.devices[0].group};
  if (OneIn(random, 6)) rules.spread = OneIn(random, 2) ? Spread::kDevices : Spread::kHosts;
  return rules;
}

Problem RandomProblem(Random& random) {
  Problem problem;
  problem.topology = RandomTopology(random);
  problem.cost = OneIn(random, 3) ? CostKind::kEmbla : CostKind::kTorchRec;
  problem.local_batch = static_cast<double>(Between(random, 1, 64));
  problem.reservation.fraction = 0;
  problem.all_widths = OneIn(random, 3);
  problem.pipeline = OneIn(random, 2) ? Pipeline::kNone : Pipeline::kSparseDist;
  double bytes = 0;
  const int tables = static_cast<int>(Between(random, 3, 5));
  for (int t = 0; t < tables; ++t) {
    Table table;
    table.name = "t" + std::to_string(t);
    table.rows = OneIn(random, 4) ? Between(random, 1, 5) : Between(random, 10, 20000);
    table.dim = static_cast<std::uint32_t>(Between(random, 1, 6)) * 64;
    table.rules = RandomRules(random, problem.topology);
    table.rules.min_partition = table.dim / 2;
    table.lookups_per_sample = OneIn(random, 10) ? 0 : static_cast<double>(Between(random, 1, 30));
    table.optimizer = OneIn(random, 2) ? OptimizerKind::kSgd : OptimizerKind::kAdam;
    bytes += static_cast<double>(table.rows) * table.dim * 4;
    problem.tables.push_back(table);
  }
  std::size_t devices = 0;
  for (const Host& host : problem.topology.hosts) devices += host.devices.size();
  // From far too little to plenty.
  const auto share = [&] {
    return bytes / static_cast<double>(devices) * static_cast<double>(Between(random, 2, 60)) / 20;
  };
  const double mean = share();
  for (Host& host : problem.topology.hosts) {
    for (Device& device : host.devices) {
      device.memory_bytes = static_cast<std::int64_t>(OneIn(random, 4) ? share() : mean);
    }
    host.memory_bytes = static_cast<std::int64_t>(share() * (OneIn(random, 2) ? 1 : 10));
    host.ssd_bytes = static_cast<std::int64_t>(share());
  }
  return problem;
}

// Shards of a cut, by device.
struct Placed {
  Ticks work = 0, host_work = 0;
  TierBytes bytes{};
  std::vector<std::uint8_t> shards;  // How many, by device.
};

class BruteForce {
 public:
  explicit BruteForce(const Problem& problem)
      : problem_(problem), machine_(MachineOf(problem)), cost_(MakeCostModel(problem)) {
    for (const Table& table : problem.tables) {
      places_.emplace_back();
      AddTable(table);
    }
    work_.resize(machine_.devices());
    bytes_.resize(machine_.devices());
    network_.resize(machine_.hosts());
    host_bytes_.resize(machine_.hosts());
  }

  // -1: there is no plan.
  Ticks Optimum() {
    best_ = std::numeric_limits<Ticks>::max();
    Try(0, 0);
    return best_ == std::numeric_limits<Ticks>::max() ? -1 : best_;
  }

  bool HasEmptyTable() const {
    return std::any_of(places_.begin(), places_.end(), [](const auto& p) { return p.empty(); });
  }

  // Whether the table lies in one of the places that the rules allow.
  bool Allows(std::uint32_t table, const Cut& cut, const std::vector<std::uint8_t>& shards) const {
    const Price price = cost_->PriceOf(problem_.tables[table], cut);
    return std::any_of(places_[table].begin(), places_[table].end(), [&](const Placed& p) {
      return p.shards == shards && p.work == price.work && p.bytes == price.bytes;
    });
  }

 private:
  void AddTable(const Table& table) {
    const absl::StatusOr<std::vector<std::uint32_t>> allowed =
        AllowedDevices(problem_, table.rules);
    if (!allowed.ok()) return;
    devices_ = *allowed;
    const auto& types = table.rules.types;
    for (int i = 1; i <= 7; ++i) {
      const ShardingType type = static_cast<ShardingType>(i);
      if (types.empty() ? type == ShardingType::kGridShard
                        : std::find(types.begin(), types.end(), type) == types.end()) {
        continue;
      }
      const auto& kernels = table.rules.kernels;
      for (int k = 0; k < kKernels; ++k) {
        const Kernel kernel = static_cast<Kernel>(k);
        if (kernels.empty() ? kernel == Kernel::kSsd
                            : std::find(kernels.begin(), kernels.end(), kernel) == kernels.end()) {
          continue;
        }
        if (type == ShardingType::kDataParallel && kernel != Kernel::kDevice) continue;
        AddType(table, type, kernel);
      }
    }
  }

  void AddType(const Table& table, ShardingType type, Kernel kernel) {
    std::vector<std::uint32_t> widths = {table.dim};
    const bool columns = type == ShardingType::kColumnWise ||
                         type == ShardingType::kTableColumnWise || type == ShardingType::kGridShard;
    if (columns) {
      const std::uint32_t narrow = ColumnWidth(table.dim, table.rules.min_partition);
      if (!problem_.all_widths) widths.clear();
      if (widths.empty() || narrow != table.dim) widths.push_back(narrow);
    }
    for (const std::uint32_t width : widths) {
      Cut cut{type, kernel, width, table.dim / width, 1};
      if (type == ShardingType::kDataParallel || type == ShardingType::kRowWise) {
        cut.row_blocks = static_cast<std::uint32_t>(devices_.size());
        Begin(table, cut);
        for (const std::uint32_t d : devices_) now_.shards[d] = 1;
        End(table);
      } else if (type == ShardingType::kTableRowWise || type == ShardingType::kGridShard) {
        AddRows(table, cut);
      } else {
        Begin(table, cut);
        AddShards(table, cut.column_blocks, type == ShardingType::kTableColumnWise, 0);
      }
    }
  }

  void AddRows(const Table& table, Cut cut) {
    for (std::uint32_t count = 1; count <= machine_.devices(); ++count) {
      std::vector<std::uint32_t> hosts;
      for (std::uint32_t h = 0; h < machine_.hosts(); ++h) {
        bool whole = machine_.devices_of(h) == count;
        for (std::uint32_t d = machine_.host_begin[h]; d < machine_.host_begin[h + 1]; ++d) {
          whole &= std::find(devices_.begin(), devices_.end(), d) != devices_.end();
        }
        if (whole) hosts.push_back(h);
      }
      if (hosts.empty()) continue;
      cut.row_blocks = count;
      Begin(table, cut);
      AddBlocks(table, hosts, cut.column_blocks);
    }
  }

  void AddBlocks(const Table& table, const std::vector<std::uint32_t>& hosts, std::uint32_t left) {
    if (left == 0) return End(table);
    for (const std::uint32_t h : hosts) {
      const std::vector<std::uint8_t> before = now_.shards;
      for (std::uint32_t d = machine_.host_begin[h]; d < machine_.host_begin[h + 1]; ++d) {
        ++now_.shards[d];
      }
      AddBlocks(table, hosts, left - 1);
      now_.shards = before;
    }
  }

  void AddShards(const Table& table, std::uint32_t left, bool one_host, std::size_t from) {
    if (left == 0) {
      std::uint32_t hosts = 0;
      for (std::uint32_t h = 0; h < machine_.hosts(); ++h) hosts += CountOn(h) > 0;
      if (!one_host || hosts <= 1) End(table);
      return;
    }
    for (std::size_t i = from; i < devices_.size(); ++i) {
      ++now_.shards[devices_[i]];
      AddShards(table, left - 1, one_host, i);
      --now_.shards[devices_[i]];
    }
  }

  std::uint32_t CountOn(std::uint32_t host) const {
    std::uint32_t count = 0;
    for (std::uint32_t d = machine_.host_begin[host]; d < machine_.host_begin[host + 1]; ++d) {
      count += now_.shards[d];
    }
    return count;
  }

  void Begin(const Table& table, const Cut& cut) {
    const Price price = cost_->PriceOf(table, cut);
    now_ = {price.work, price.host_work, price.bytes,
            std::vector<std::uint8_t>(machine_.devices())};
  }

  void End(const Table& table) {
    const Spread spread = table.rules.spread;
    for (const std::uint8_t count : now_.shards) {
      if (spread != Spread::kAny && count > 1) return;
    }
    for (std::uint32_t h = 0; h < machine_.hosts(); ++h) {
      if (spread == Spread::kHosts && CountOn(h) > 1) return;
    }
    places_.back().push_back(now_);
  }

  void Apply(const Placed& placed, int sign) {
    for (std::uint32_t d = 0; d < machine_.devices(); ++d) {
      const std::int64_t n = sign * static_cast<int>(placed.shards[d]);
      const std::uint32_t h = machine_.host_of[d];
      work_[d] += n * placed.work;
      bytes_[d] += n * placed.bytes[0];
      network_[h] += n * placed.host_work;
      host_bytes_[h][1] += n * placed.bytes[1];
      host_bytes_[h][2] += n * placed.bytes[2];
    }
  }

  // The max load, or -1 where memory overflows.
  Ticks Load() const {
    Ticks worst = 0;
    for (std::uint32_t d = 0; d < machine_.devices(); ++d) {
      if (bytes_[d] > machine_.capacity[d]) return -1;
      worst = std::max(worst, Slowed(work_[d], machine_.slowdown[d]));
    }
    for (std::uint32_t h = 0; h < machine_.hosts(); ++h) {
      if (host_bytes_[h][1] > machine_.host_capacity[h][1]) return -1;
      if (host_bytes_[h][2] > machine_.host_capacity[h][2]) return -1;
      worst = std::max(worst, network_[h]);
    }
    return worst;
  }

  void Try(std::size_t table, Ticks load) {
    if (table == places_.size()) {
      best_ = std::min(best_, load);
      return;
    }
    for (const Placed& placed : places_[table]) {
      Apply(placed, +1);
      const Ticks now = Load();
      if (now >= 0 && now < best_) Try(table + 1, now);
      Apply(placed, -1);
    }
  }

  const Problem& problem_;
  const Machine machine_;
  const std::unique_ptr<CostModel> cost_;
  std::vector<std::vector<Placed>> places_;  // By table.
  std::vector<std::uint32_t> devices_;       // Allowed for the table at hand.
  Placed now_;
  std::vector<Ticks> work_, network_;
  std::vector<std::int64_t> bytes_;
  std::vector<TierBytes> host_bytes_;
  Ticks best_ = 0;
};

std::vector<std::uint8_t> ShardsOf(const Machine& machine, const Choice& choice,
                                   const std::vector<std::uint32_t>& allowed) {
  std::vector<std::uint8_t> shards(machine.devices());
  if (choice.placement == Placement::kEverywhere) {
    for (const std::uint32_t d : allowed) ++shards[d];
  }
  for (const std::uint32_t target : choice.targets) {
    if (choice.placement == Placement::kShards) {
      ++shards[target];
      continue;
    }
    for (std::uint32_t d = machine.host_begin[target]; d < machine.host_begin[target + 1]; ++d) {
      ++shards[d];
    }
  }
  return shards;
}

// The plan lies where the rules allow it, and its uses are what its choices add up to.
void CheckPlan(const Planned& planned, const BruteForce& brute) {
  const Problem& problem = planned.problem;
  const Solution& solution = planned.solution;
  const Machine machine = MachineOf(problem);
  const auto cost = MakeCostModel(problem);
  ASSERT_EQ(solution.choices.size(), problem.tables.size());
  std::vector<Ticks> work(machine.devices());
  std::vector<std::int64_t> bytes(machine.devices());
  for (std::uint32_t t = 0; t < problem.tables.size(); ++t) {
    const Choice& choice = solution.choices[t];
    const auto allowed = AllowedDevices(problem, problem.tables[t].rules);
    ASSERT_THAT(allowed, IsOk());
    const std::vector<std::uint8_t> shards = ShardsOf(machine, choice, *allowed);
    EXPECT_TRUE(brute.Allows(t, choice.cut, shards)) << "table " << t;
    const Price price = cost->PriceOf(problem.tables[t], choice.cut);
    for (std::uint32_t d = 0; d < machine.devices(); ++d) {
      work[d] += shards[d] * price.work;
      bytes[d] += shards[d] * price.bytes[0];
    }
  }
  for (std::uint32_t d = 0; d < machine.devices(); ++d) {
    EXPECT_EQ(solution.devices[d].load, Slowed(work[d], machine.slowdown[d]));
    EXPECT_EQ(solution.devices[d].bytes, bytes[d]);
    EXPECT_LE(bytes[d], machine.capacity[d]);
    EXPECT_LE(solution.devices[d].load, solution.max_load);
  }
}

std::string Describe(const Planned& planned) {
  std::string text = "bound " + std::to_string(planned.solution.lower_bound) + ", certificate " +
                     std::to_string(planned.solution.certificate.bound) + ", plan " +
                     std::to_string(planned.solution.max_load) + ", operations " +
                     std::to_string(planned.solution.operations) + "\n";
  for (const Host& host : planned.problem.topology.hosts) {
    text += host.name + " memory " + std::to_string(host.memory_bytes) + " ssd " +
            std::to_string(host.ssd_bytes) + ":";
    for (const Device& device : host.devices) {
      text += " " + std::to_string(device.memory_bytes) + "/" + std::to_string(device.slowdown);
    }
    text += "\n";
  }
  for (std::size_t t = 0; t < planned.problem.tables.size(); ++t) {
    const Choice& choice = planned.solution.choices[t];
    text += planned.problem.tables[t].name + " type " +
            std::to_string(static_cast<int>(choice.cut.type)) + " kernel " +
            std::to_string(static_cast<int>(choice.cut.kernel)) + " shards " +
            std::to_string(choice.cut.shards()) + " spread " +
            std::to_string(static_cast<int>(planned.problem.tables[t].rules.spread)) + " on";
    for (const std::uint32_t target : choice.targets) text += " " + std::to_string(target);
    text += "\n";
  }
  return text;
}

TEST(SolveBruteForce, BoundOptimumAndPlanAreInOrderAndFeasiblePlansAreFound) {
  const char* text = std::getenv("EMBLA_TEST_SEED");
  const std::uint64_t seed = text == nullptr ? 20261121 : std::strtoull(text, nullptr, 10);
  std::cout << "seed " << seed << " (EMBLA_TEST_SEED)\n";
  Random random(seed);
  int feasible = 0, infeasible = 0, refused = 0, tight = 0;
  while (feasible + infeasible < 1000 && !::testing::Test::HasFailure()) {
    const Problem problem = RandomProblem(random);
    SCOPED_TRACE("case " + std::to_string(feasible + infeasible + refused));
    const absl::StatusOr<Planned> planned = Solve(problem, {.search_operations_max = 20'000'000});
    if (planned.status().code() == absl::StatusCode::kInvalidArgument) {
      ++refused;
      // Rules that contradict each other: nothing to try.
      if (Validate(problem).ok()) {
        EXPECT_TRUE(BruteForce(problem).HasEmptyTable()) << planned.status().message();
      }
      continue;
    }
    BruteForce brute(problem);
    const Ticks optimum = brute.Optimum();
    if (optimum < 0) {
      ++infeasible;
      EXPECT_EQ(planned.status().code(), absl::StatusCode::kResourceExhausted);
      continue;
    }
    ++feasible;
    ASSERT_THAT(planned, IsOk());
    const Solution& solution = planned->solution;
    EXPECT_LE(solution.lower_bound, optimum);
    EXPECT_LE(solution.certificate.bound, optimum);
    EXPECT_GE(solution.max_load, optimum);
    // Tables that are few enough to be searched to the end, up to the goal of 0.05 %.
    EXPECT_LE(MsFromTicks(solution.max_load), MsFromTicks(optimum) * 1.0006 + 1e-8);
    tight += solution.certificate.price[0] > 0;
    CheckPlan(*planned, brute);
    if (::testing::Test::HasFailure()) std::cout << Describe(*planned);
  }
  std::cout << feasible << " with a plan (" << tight << " where memory has a price), " << infeasible
            << " without, " << refused << " refused\n";
  EXPECT_GE(feasible, 400);
  EXPECT_GE(infeasible, 50);
}

}  // namespace
}  // namespace embla::planner
