// How good are plans, and how fast? Every scenario of planner_inputs/scenarios.json: max load,
// proven bound and time beside the reference, then the growth of time with tables.
//
//   planner_bench [--filter TEXT] [--runs N] [--growth]
//
// EMBLA_DATA_DIR (default ../shared/data) holds planner_inputs; without it the bench says so and
// ends with 0. One thread; the time is the processor's in Solve(), reading excluded: the median of
// N runs.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "core/plan/names.h"
#include "core/planner/io/csv.h"
#include "core/planner/problem/cost_model.h"
#include "core/planner/problem/solution.h"
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
    std::printf("%-24s %s\n", name.c_str(), timed.planned.status().ToString().c_str());
    return;
  }
  const Solution& solution = timed.planned->solution;
  const double torchrec = reference.value("torchrec_planner_max_ms", 0.0);
  std::printf("%-24s %10.4f %10.4f %7.3f %9.1f | %10.4f %10.4f", name.c_str(),
              MsFromTicks(solution.lower_bound), MsFromTicks(solution.max_load),
              GapPercent(solution), timed.ms, reference["lower_bound_ms"].get<double>(),
              reference["prototype_max_ms"].get<double>());
  if (torchrec > 0) {
    std::printf(" %10.4f %7.3f", torchrec, MsFromTicks(solution.max_load) / torchrec);
  }
  std::printf("\n");
  std::fflush(stdout);
}

void PrintGrowth(const std::vector<Table>& tables, int runs) {
  std::printf("\ngrowth: tables of powerlaw100k on 128 x 8 devices, TorchRec's cost model\n");
  std::printf("%8s %10s %10s %8s %12s\n", "tables", "ms", "us/table", "gap %", "peak MiB");
  for (std::size_t n = 100; n <= tables.size(); n = n == 31'600 ? 100'000 : n * 316 / 100) {
    Problem problem;
    problem.tables.assign(tables.begin(), tables.begin() + static_cast<std::ptrdiff_t>(n));
    problem.local_batch = 64;
    problem.reservation.fraction = 0;
    problem.topology = HostsOf(128, 8, 29205777612);
    const Timed timed = Run(problem, runs);
    if (!timed.planned.ok()) continue;
    std::printf("%8zu %10.2f %10.2f %8.3f %12ld\n", n, timed.ms,
                timed.ms * 1e3 / static_cast<double>(n), GapPercent(timed.planned->solution),
                PeakRssMib());
  }
}

int Main(const std::string& filter, int runs, bool growth) {
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
  std::printf("%-24s %10s %10s %7s %9s | %10s %10s %10s %7s\n", "scenario", "bound ms", "plan ms",
              "gap %", "time ms", "ref bound", "ref plan", "torchrec", "ratio");
  for (const nlohmann::json& scenario : document["scenarios"]) {
    const std::string name = scenario["name"];
    if (name.find(filter) == std::string::npos) continue;
    PrintScenario(scenario, ProblemOf(scenario, tables_of(scenario["input"])), runs);
  }
  std::printf("peak memory of the process: %ld MiB\n", PeakRssMib());
  if (growth) PrintGrowth(tables_of("powerlaw100k.csv"), runs);
  return 0;
}

}  // namespace
}  // namespace embla::planner

int main(int argc, char** argv) {
  std::string filter;
  int runs = 3;
  bool growth = false;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--growth") {
      growth = true;
    } else if (flag == "--filter" && i + 1 < argc) {
      filter = argv[++i];
    } else if (flag == "--runs" && i + 1 < argc) {
      runs = std::max(1, std::atoi(argv[++i]));
    } else {
      std::fprintf(stderr, "usage: planner_bench [--filter TEXT] [--runs N] [--growth]\n");
      return 2;
    }
  }
  return embla::planner::Main(filter, runs, growth);
}
