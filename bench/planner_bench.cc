// How good are plans, and how fast? Every scenario of planner_inputs/scenarios.json: max load,
// proven bound and time beside the reference; then, on request, drawn inputs that the planner's
// settings were not chosen on, the growth of time with tables, and re-planning.
//
//   planner_bench [--filter TEXT] [--runs N] [--fresh N] [--growth] [--replan]
//
// EMBLA_DATA_DIR (default ../shared/data) holds planner_inputs; without it only --fresh runs. One
// thread; the time is the processor's in Solve(), reading excluded: the median of N runs.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/plan/names.h"
#include "core/planner/io/csv.h"
#include "core/planner/problem/cost_model.h"
#include "core/planner/problem/solution.h"
#include "core/planner/solver/replan.h"
#include "core/planner/solver/solve.h"
#include "nlohmann/json.hpp"

namespace embla::planner {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Processor time: the solver has one thread, and the machine may have other work.
double Seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

long PeakRssMib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

Topology HostsOf(int hosts, int devices, std::int64_t device_bytes) {
  Topology topology;
  for (int h = 0; h < hosts; ++h) {
    char name[16];
    std::snprintf(name, sizeof name, "h%04d", h);
    Host host{name, {}, devices * (std::int64_t{128} << 30), 0};
    host.devices.assign(devices, Device{device_bytes, 1.0, ""});
    topology.hosts.push_back(host);
  }
  return topology;
}

// Device bytes per device when every table takes its cheapest cut: what "memory at 0.6 of need"
// means in the scenarios.
double NeedPerDevice(Problem problem) {
  for (Host& host : problem.topology.hosts) {
    for (Device& device : host.devices) device.memory_bytes = std::int64_t{1} << 50;
    host.memory_bytes = std::int64_t{1} << 50;
  }
  const absl::StatusOr<Planned> planned = Solve(std::move(problem));
  double sum = 0;
  for (const DeviceUse& use : planned->solution.devices) sum += static_cast<double>(use.bytes);
  return sum / static_cast<double>(planned->solution.devices.size());
}

Problem ProblemOf(const nlohmann::json& scenario, std::vector<Table> tables) {
  Problem problem;
  problem.tables = std::move(tables);
  problem.local_batch = scenario["local_batch"];
  problem.reservation.fraction = 0;
  problem.min_partition = scenario.value("min_partition", 0);
  problem.all_widths = scenario.contains("cw_widths");
  std::vector<ShardingType> types;
  for (const std::string name : scenario["sharding_types"]) {
    types.push_back(*FromName<ShardingType>(name));
  }
  for (Table& table : problem.tables) table.rules.types = types;
  const int hosts = scenario["hosts"];
  const int devices = scenario["devices_per_host"];
  problem.topology = HostsOf(hosts, devices, 29205777612);
  const double factor = scenario.value("hbm_cap_factor_of_unconstrained", 0.0);
  if (factor > 0) {
    const std::int64_t bytes = static_cast<std::int64_t>(factor * NeedPerDevice(problem));
    problem.topology = HostsOf(hosts, devices, bytes);
  }
  return problem;
}

struct Timed {
  double ms = 0;
  absl::StatusOr<Planned> planned = absl::UnknownError("not run");
};

Timed Run(const Problem& problem, int runs) {
  Timed timed;
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    Problem copy = problem;
    const double start = Seconds();
    timed.planned = Solve(std::move(copy));
    times.push_back((Seconds() - start) * 1e3);
  }
  std::sort(times.begin(), times.end());
  timed.ms = times[times.size() / 2];
  return timed;
}

double GapPercent(const Solution& solution) {
  return 100.0 * (static_cast<double>(solution.max_load) /
                      static_cast<double>(std::max<Ticks>(1, solution.lower_bound)) -
                  1);
}

void PrintScenario(const nlohmann::json& scenario, const Problem& problem, int runs) {
  const std::string name = scenario["name"];
  const nlohmann::json& reference = scenario["reference"];
  const Timed timed = Run(problem, runs);
  if (!timed.planned.ok()) {
    std::printf("| %s | %s |\n", name.c_str(), timed.planned.status().ToString().c_str());
    return;
  }
  const Solution& solution = timed.planned->solution;
  const double torchrec = reference.value("torchrec_planner_max_ms", 0.0);
  std::printf("| %s | %.4f | %.4f | %.3f | %.1f | %.4f | %.4f |", name.c_str(),
              MsFromTicks(solution.lower_bound), MsFromTicks(solution.max_load),
              GapPercent(solution), timed.ms, reference["lower_bound_ms"].get<double>(),
              reference["prototype_max_ms"].get<double>());
  if (torchrec > 0) {
    std::printf(" %.4f | %.3f |\n", torchrec, MsFromTicks(solution.max_load) / torchrec);
  } else {
    std::printf(" - | - |\n");
  }
  std::fflush(stdout);
}

void PrintGrowth(const std::vector<Table>& tables, int runs) {
  std::printf("\nTables of powerlaw100k on 128 x 8 devices, every usual sharding type:\n\n");
  std::printf("| tables | ms | us per table | gap %% | peak MiB |\n|---|---|---|---|---|\n");
  for (const std::size_t n : {100, 316, 1000, 3162, 10'000, 31'623, 100'000}) {
    if (n > tables.size()) break;
    Problem problem;
    problem.tables.assign(tables.begin(), tables.begin() + static_cast<std::ptrdiff_t>(n));
    problem.local_batch = 64;
    problem.reservation.fraction = 0;
    problem.topology = HostsOf(128, 8, 29205777612);
    const Timed timed = Run(problem, runs);
    if (!timed.planned.ok()) continue;
    std::printf("| %zu | %.2f | %.2f | %.3f | %ld |\n", n, timed.ms,
                timed.ms * 1e3 / static_cast<double>(n), GapPercent(timed.planned->solution),
                PeakRssMib());
  }
}

// --- Drawn inputs ---

enum class Shape { kUniform, kPareto };

struct Draw {
  Shape shape;
  int tables, hosts;
  double local_batch;
};

// kUniform: like the 500 tables; kPareto: many small tables and a few large ones.
std::vector<Table> DrawTables(const Draw& draw, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto uniform = [&] {
    return (static_cast<double>(random() >> 11) + 1) / 9007199254740993.0;
  };
  std::vector<Table> tables;
  for (int i = 0; i < draw.tables; ++i) {
    Table table;
    table.name = "t" + std::to_string(i);
    table.dim = std::uint32_t{16} << (random() % 4);
    if (draw.shape == Shape::kUniform) {
      table.rows = 1 + static_cast<std::int64_t>(uniform() * 200'000);
      table.lookups_per_sample = 1 + std::floor(uniform() * 40);
    } else {
      table.rows = static_cast<std::int64_t>(std::min(4e6, 1000 * std::pow(uniform(), -1.3)));
      table.lookups_per_sample = std::min(200.0, std::pow(uniform(), -0.9));
    }
    table.rules.types = TypesWhere(
        [](const ShardingTraits& type) { return !type.has_copies && !type.must_be_named; });
    tables.push_back(std::move(table));
  }
  return tables;
}

void PrintFreshRow(const Draw& draw, std::uint64_t seed, const char* memory, const Timed& timed) {
  std::printf("| %s %d x %d | %llu | %s |", draw.shape == Shape::kUniform ? "uniform" : "pareto",
              draw.tables, draw.hosts * 8, static_cast<unsigned long long>(seed), memory);
  if (timed.planned.ok()) {
    const Solution& solution = timed.planned->solution;
    std::printf(" %.4f | %.4f | %.3f | %.1f |\n", MsFromTicks(solution.lower_bound),
                MsFromTicks(solution.max_load), GapPercent(solution), timed.ms);
  } else {
    std::printf(" %s |\n", std::string(timed.planned.status().message()).c_str());
  }
  std::fflush(stdout);
}

void PrintFresh(int seeds, int runs) {
  static constexpr Draw kDraws[] = {{Shape::kUniform, 500, 1, 512},
                                    {Shape::kUniform, 2000, 8, 64},
                                    {Shape::kPareto, 1500, 4, 64},
                                    {Shape::kPareto, 10'000, 16, 64}};
  static constexpr struct {
    const char* name;
    int percent;
  } kMemories[] = {{"0.9", 90}, {"0.75", 75}, {"0.6", 60}};
  std::printf("\n| input | seed | memory | bound ms | plan ms | gap %% | time ms |\n");
  std::printf("|---|---|---|---|---|---|---|\n");
  for (const Draw& draw : kDraws) {
    for (int i = 0; i < seeds; ++i) {
      const std::uint64_t seed = 1000 + static_cast<std::uint64_t>(i);
      Problem problem;
      problem.tables = DrawTables(draw, seed);
      problem.local_batch = draw.local_batch;
      problem.reservation.fraction = 0;
      problem.topology = HostsOf(draw.hosts, 8, 29205777612);
      PrintFreshRow(draw, seed, "loose", Run(problem, runs));
      const double need = NeedPerDevice(problem);
      for (const auto& memory : kMemories) {
        problem.topology =
            HostsOf(draw.hosts, 8, static_cast<std::int64_t>(need * memory.percent / 100));
        PrintFreshRow(draw, seed, memory.name, Run(problem, runs));
      }
    }
  }
}

// --- Re-planning ---

void PrintReplan(const char* name, const std::vector<Table>& tables, int hosts, double local_batch,
                 int change) {
  Problem problem;
  problem.tables = tables;
  for (Table& table : problem.tables) {
    table.rules.types = TypesWhere(
        [](const ShardingTraits& type) { return !type.has_copies && !type.must_be_named; });
  }
  problem.reservation.fraction = 0;
  problem.local_batch = local_batch;
  problem.topology = HostsOf(hosts, 8, 29205777612);
  const absl::StatusOr<Planned> before = Solve(problem);
  problem.topology = HostsOf(hosts + change, 8, 29205777612);
  problem.local_batch = local_batch * hosts / (hosts + change);
  const double start = Seconds();
  const absl::StatusOr<Replanned> after = Replan(problem, *before);
  const double ms = (Seconds() - start) * 1e3;
  if (!after.ok()) {
    std::printf("| %s | %s |\n", name, std::string(after.status().message()).c_str());
    return;
  }
  const double bound = static_cast<double>(after->planned.solution.lower_bound);
  const double total = static_cast<double>(after->total_bytes) / 100;
  std::printf("| %s %d -> %d | %.3f | %.3f | %.4f | %.4f | %.4f | %zu | %.1f |\n", name, hosts * 8,
              (hosts + change) * 8, static_cast<double>(after->load_before) / bound,
              static_cast<double>(after->planned.solution.max_load) / bound,
              static_cast<double>(after->moved_bytes) / total,
              static_cast<double>(after->forced_bytes) / total,
              static_cast<double>(after->shed_bound_bytes) / total, after->moves.size(), ms);
}

struct Flags {
  std::string filter;
  int runs = 3;
  int fresh = 0;
  bool growth = false;
  bool replan = false;
};

int Main(const Flags& flags) {
  if (flags.fresh > 0) PrintFresh(flags.fresh, flags.runs);
  const char* data = std::getenv("EMBLA_DATA_DIR");
  const std::string folder =
      std::string(data == nullptr ? "../shared/data" : data) + "/planner_inputs/";
  const nlohmann::json document =
      nlohmann::json::parse(ReadAll(folder + "scenarios.json"), nullptr, false);
  if (document.is_discarded()) {
    std::printf("SKIPPED: no %sscenarios.json; set EMBLA_DATA_DIR\n", folder.c_str());
    return 0;
  }
  std::map<std::string, std::vector<Table>> inputs;
  const auto tables_of = [&](const std::string& file) -> const std::vector<Table>& {
    std::vector<Table>& tables = inputs[file];
    if (tables.empty()) tables = TablesFromCsv(ReadAll(folder + file)).value();
    return tables;
  };
  std::printf(
      "\n| scenario | bound ms | plan ms | gap %% | time ms | reference bound | reference "
      "plan | TorchRec | plan / TorchRec |\n|---|---|---|---|---|---|---|---|---|\n");
  for (const nlohmann::json& scenario : document["scenarios"]) {
    const std::string name = scenario["name"];
    if (name.find(flags.filter) == std::string::npos) continue;
    PrintScenario(scenario, ProblemOf(scenario, tables_of(scenario["input"])), flags.runs);
  }
  if (flags.replan) {
    std::printf(
        "\n| re-plan | start / bound | reached / bound | moved %% | of it forced %% | "
        "movement bound beyond forced %% | moves | ms |\n|---|---|---|---|---|---|---|---|\n");
    for (const int change : {1, -1}) {
      PrintReplan("pl10k", tables_of("powerlaw10k.csv"), 16, 512, change);
      PrintReplan("meta856", tables_of("meta856.csv"), 8, 1024, change);
    }
  }
  if (flags.growth) PrintGrowth(tables_of("powerlaw100k.csv"), flags.runs);
  std::printf("\npeak memory of the process: %ld MiB\n", PeakRssMib());
  return 0;
}

}  // namespace
}  // namespace embla::planner

int main(int argc, char** argv) {
  embla::planner::Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--growth") {
      flags.growth = true;
    } else if (flag == "--replan") {
      flags.replan = true;
    } else if (flag == "--filter" && i + 1 < argc) {
      flags.filter = argv[++i];
    } else if (flag == "--runs" && i + 1 < argc) {
      flags.runs = std::max(1, std::atoi(argv[++i]));
    } else if (flag == "--fresh" && i + 1 < argc) {
      flags.fresh = std::max(1, std::atoi(argv[++i]));
    } else {
      std::fprintf(stderr,
                   "usage: planner_bench [--filter TEXT] [--runs N] [--fresh N] [--growth] "
                   "[--replan]\n");
      return 2;
    }
  }
  return embla::planner::Main(flags);
}
