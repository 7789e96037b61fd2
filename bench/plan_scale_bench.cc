// Plans of a large model on a large cluster, simulated: the 100,000 tables of powerlaw100k.csv on
// 128 nodes of 8 devices, placed by `auto` in one change. Prints what a plan takes in memory, as
// bytes on the wire and, for each further change, of CPU in the coordinator, a node and a client;
// then how each of these grows with the number of tables.
//
//   plan_scale_bench [TABLES...]    default: 1000 10000 100000
//
// Finds the tables by EMBLA_DATA_DIR. The coordinator is the real one on a state store in files:
// its change is the edit, the commit, what leads to the new plan as bytes, what its metrics ask
// for, and a tick. A client's memory is all that it allocates for plan and routes; its change is
// decoding, checking and routing what the coordinator sent. The node is one without rows: decoding,
// checking, and its devices' look at all tables. All times are of CPU: other programs may run.
#include <malloc.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "client/route/table_route.h"
#include "core/plan/names.h"
#include "core/plan/plan_delta.h"
#include "core/planner/cluster/auto_placement.h"
#include "core/planner/io/csv.h"
#include "core/wire/plan_codec.h"
#include "server/coordinator/coordinator.h"
#include "server/shard/shard_node.h"
#include "server/state_store/file_state_store.h"

namespace embla {
namespace {

constexpr int kNodes = 128;
constexpr int kDevices = 8;
constexpr int kRuns = 9;
constexpr std::int64_t kDeviceBytes = 29'205'777'612;

double MiB(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }
std::size_t InUse() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// CPU of this process.
class Stopwatch {
 public:
  double ms() const { return Now() - start_; }

 private:
  static double Now() {
    timespec now = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
  }
  double start_ = Now();
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::vector<NodeSpec> Nodes() {
  std::vector<NodeSpec> nodes;
  for (std::uint32_t i = 0; i < kNodes; ++i) {
    NodeSpec node{.id = NodeId{i + 1},
                  .name = "n" + std::to_string(i),
                  .address = "10.0.0." + std::to_string(i) + ":7070"};
    const DeviceSpec gpu{.kind = DeviceKind::kGpu, .memory_bytes = kDeviceBytes};
    node.devices.assign(kDevices, gpu);
    nodes.push_back(std::move(node));
  }
  return nodes;
}

TableSpec SpecOf(const planner::Table& table) {
  TableSpec spec;
  spec.name = table.name;
  spec.rows = table.rows;
  spec.dim = table.dim;
  spec.lookups_per_sample = table.lookups_per_sample;
  spec.SetDefaults();
  return spec;
}

// After those that have tables.
NodeSpec Spare() {
  const DeviceSpec device{.kind = DeviceKind::kCpu, .memory_bytes = std::int64_t{1} << 20};
  return {.id = NodeId{kNodes + 1},
          .name = "spare",
          .address = "10.0.1.0:7070",
          .devices = std::vector<DeviceSpec>(2, device)};
}

// A client, as far as it deals with plans.
struct ClientOfPlans {
  PlanPtr plan = std::make_shared<const Plan>();
  client::RoutesPtr routes;

  void Take(const std::string& bytes) {
    v1::PlanDelta message;
    if (!message.ParseFromString(bytes)) std::abort();
    plan = wire::ApplyMessage(message, *plan).value();
    routes = std::make_shared<const client::Routes>(plan, routes.get());
  }
};

// A node, as far as it deals with plans.
struct NodeOfPlans {
  BufferPool pool;
  std::unique_ptr<ShardNode> node =
      ShardNode::Create({.name = Spare().name, .devices = Spare().devices}, pool).value();

  void Take(const std::string& bytes) {
    v1::PlanDelta message;
    if (!message.ParseFromString(bytes)) std::abort();
    const PlanPtr plan = wire::ApplyMessage(message, *node->plan()).value();
    if (!node->InstallPlan(plan, Spare().id).ok()) std::abort();
  }
};

// The coordinator, on files that go with it.
class CoordinatorOfPlans {
 public:
  CoordinatorOfPlans() {
    std::filesystem::remove_all(directory_);
    Restart();
    for (const NodeSpec& node : Nodes()) Register(node);
  }
  ~CoordinatorOfPlans() { std::filesystem::remove_all(directory_); }

  // Fails where the tables have no room.
  absl::Status Create(const std::vector<planner::Table>& tables) {
    CreateRequest request;
    for (const planner::Table& table : tables) {
      request.tables.push_back({SpecOf(table), {.automatic = true}});
    }
    const auto started = coordinator_->StartCreateTables(std::move(request), now_);
    if (!started.ok()) return started.status();
    HeartbeatInfo installed;
    installed.plan_version = coordinator_->GetPlan()->version();
    for (const NodeId node : nodes_) {
      if (!coordinator_->Heartbeat(node, 1, installed, now_).ok()) std::abort();
    }
    Register(Spare());
    return absl::OkStatus();
  }
  // Returns the delta to the new plan.
  std::string Change(const std::string& table, int run) {
    const PlanPtr before = coordinator_->GetPlan();
    coordinator_->BeginWrites();
    const std::string rate = std::to_string(0.001 * (run + 1));
    if (!coordinator_->SetTable(table, {{"learning_rate", rate}}, now_).ok()) std::abort();
    coordinator_->Tick(now_);
    static_cast<void>(coordinator_->Status());
    if (!coordinator_->EndWrites().ok()) std::abort();
    static_cast<void>(coordinator_->TakeEffects());
    return wire::ToMessage(DeltaBetween(*before, *plan())).SerializeAsString();
  }
  void Restart() {
    coordinator_.reset();
    store_.reset();
    store_ = FileStateStore::Open(directory_).value();
    coordinator_ = Coordinator::Open(*store_, {.new_cluster_id = "c"}, now_).value();
  }
  PlanPtr plan() const { return coordinator_->GetPlan(); }

 private:
  void Register(const NodeSpec& node) {
    nodes_.push_back(coordinator_
                         ->RegisterNode({.name = node.name,
                                         .address = node.address,
                                         .devices = node.devices,
                                         .boot_id = 1,
                                         .cluster_id = "",
                                         .accept_loss = true},
                                        now_)
                         .value());
  }

  const std::string directory_ =
      std::filesystem::temp_directory_path() / ("plan_scale." + std::to_string(getpid()));
  const absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  std::unique_ptr<FileStateStore> store_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<NodeId> nodes_;
};

// Figures measured for one number of tables, by name.
using Figures = std::vector<std::pair<std::string, double>>;

void MeasureChanges(CoordinatorOfPlans& coordinator, ClientOfPlans& client, NodeOfPlans& node,
                    Figures* figures) {
  std::vector<double> coordinator_ms, node_ms, client_ms;
  std::size_t delta_bytes = 0;
  for (int run = 0; run < kRuns; ++run) {
    const PlanPtr plan = coordinator.plan();
    const auto which = static_cast<std::size_t>(run) * (plan->tables().size() - 1) / kRuns;
    const Stopwatch changing;
    const std::string delta = coordinator.Change(plan->tables()[which].spec.name, run);
    coordinator_ms.push_back(changing.ms());
    delta_bytes = delta.size();
    const Stopwatch following;
    client.Take(delta);
    client_ms.push_back(following.ms());
    const Stopwatch installing;
    node.Take(delta);
    node_ms.push_back(installing.ms());
  }
  figures->emplace_back("change: coordinator ms", Median(coordinator_ms));
  figures->emplace_back("change: node ms", Median(node_ms));
  figures->emplace_back("change: client ms", Median(client_ms));
  figures->emplace_back("change: bytes", static_cast<double>(delta_bytes));
}

Figures Measure(const std::vector<planner::Table>& tables) {
  Figures figures;
  CoordinatorOfPlans coordinator;
  const Stopwatch creating;
  if (const absl::Status created = coordinator.Create(tables); !created.ok()) {
    std::printf("%zu tables: %s\n", tables.size(), created.ToString().c_str());
    return figures;
  }
  figures.emplace_back("created in s", creating.ms() / 1000);
  const PlanPtr plan = coordinator.plan();
  std::size_t slices = 0;
  std::map<std::string, std::size_t> types;
  for (const TablePlan& table : plan->tables()) {
    slices += table.primary().size();
    ++types[std::string(NameOf(table.sharding))];
  }
  figures.emplace_back("slices", static_cast<double>(slices));
  const std::string whole = wire::ToMessage(DeltaBetween(Plan(), *plan)).SerializeAsString();
  figures.emplace_back("whole plan MiB", MiB(whole.size()));
  ClientOfPlans client;
  const std::size_t before = InUse();
  const Stopwatch taking;
  client.Take(whole);
  figures.emplace_back("client takes it in ms", taking.ms());
  figures.emplace_back("client MiB", MiB(InUse() - before));
  NodeOfPlans node;
  node.Take(whole);
  MeasureChanges(coordinator, client, node, &figures);
  const Stopwatch restarting;
  coordinator.Restart();
  figures.emplace_back("restart ms", restarting.ms());
  std::printf("%zu tables:", tables.size());
  for (const auto& [type, count] : types) std::printf(" %s %zu", type.c_str(), count);
  std::printf("\n");
  std::fflush(stdout);
  return figures;
}

// Fits the exponent by least squares over the logarithms.
double Exponent(const std::vector<double>& counts, const std::vector<double>& values) {
  double mean_x = 0, mean_y = 0, above = 0, below = 0;
  const auto n = static_cast<double>(counts.size());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    mean_x += std::log(counts[i]) / n;
    mean_y += std::log(std::max(values[i], 1e-9)) / n;
  }
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double x = std::log(counts[i]) - mean_x;
    above += x * (std::log(std::max(values[i], 1e-9)) - mean_y);
    below += x * x;
  }
  return above / below;
}

void Print(const std::vector<double>& counts, const std::vector<Figures>& all) {
  std::printf("\n| |");
  for (const double count : counts) std::printf(" %.0f tables |", count);
  std::printf(" exponent |\n|---|");
  for (std::size_t i = 0; i < counts.size(); ++i) std::printf("---|");
  std::printf("---|\n");
  for (std::size_t row = 0; row < all.front().size(); ++row) {
    std::vector<double> values;
    std::printf("| %s |", all.front()[row].first.c_str());
    for (const Figures& figures : all) {
      values.push_back(figures[row].second);
      std::printf(values.back() < 100 ? " %.2f |" : " %.0f |", values.back());
    }
    std::printf(counts.size() < 2 ? " |\n" : " %.2f |\n", Exponent(counts, values));
  }
}

int Main(const std::vector<std::size_t>& counts) {
  const char* const data = std::getenv("EMBLA_DATA_DIR");
  const std::string file =
      std::string(data == nullptr ? "../shared/data" : data) + "/planner_inputs/powerlaw100k.csv";
  std::ifstream in(file);
  if (!in) {
    std::printf("SKIPPED: no %s; set EMBLA_DATA_DIR\n", file.c_str());
    return 0;
  }
  std::stringstream text;
  text << in.rdbuf();
  const std::vector<planner::Table> tables = planner::TablesFromCsv(text.str()).value();
  std::vector<double> done;
  std::vector<Figures> all;
  for (const std::size_t count : counts) {
    const auto end = tables.begin() + static_cast<std::ptrdiff_t>(std::min(count, tables.size()));
    const Figures figures = Measure({tables.begin(), end});
    if (figures.empty()) return 1;
    done.push_back(static_cast<double>(count));
    all.push_back(figures);
  }
  Print(done, all);
  return 0;
}

}  // namespace
}  // namespace embla

int main(int argc, char** argv) {
  std::vector<std::size_t> counts;
  for (int i = 1; i < argc; ++i) counts.push_back(std::strtoul(argv[i], nullptr, 10));
  if (counts.empty()) counts = {1000, 10'000, 100'000};
  if (std::count(counts.begin(), counts.end(), 0) > 0) {
    std::fprintf(stderr, "usage: plan_scale_bench [TABLES...]\n");
    return 2;
  }
  return embla::Main(counts);
}
