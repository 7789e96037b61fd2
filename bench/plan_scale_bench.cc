// Plans of a large model on a large cluster, simulated: the 100,000 tables of powerlaw100k.csv on
// 128 nodes of 8 devices, placed by `auto` in one change. Prints what a plan takes in memory, as
// bytes on the wire and, for each further change, in the coordinator and in a client.
//
//   plan_scale_bench [TABLES...]    default: 1000 10000 100000
//
// Finds the tables by EMBLA_DATA_DIR. A client's memory is all that it allocates for plan and
// routes; its change is decoding, checking and routing what the coordinator sent. The node is one
// without rows: decoding, checking, and its devices' look at all tables.
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "client/route/table_route.h"
#include "core/plan/names.h"
#include "core/plan/plan_delta.h"
#include "core/planner/cluster/auto_placement.h"
#include "core/planner/io/csv.h"
#include "core/wire/plan_codec.h"
#include "server/shard/shard_node.h"

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

class Stopwatch {
 public:
  double ms() const { return absl::ToDoubleMilliseconds(absl::Now() - start_); }

 private:
  absl::Time start_ = absl::Now();
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

void Measure(const std::vector<planner::Table>& tables) {
  std::vector<planner::TableToPlace> wanted;
  for (const planner::Table& table : tables) wanted.push_back({SpecOf(table), {.automatic = true}});
  const Stopwatch placing;
  auto placed = planner::PlaceTables(wanted, Nodes(), {});
  if (!placed.ok()) {
    std::printf("%zu tables: %s\n", tables.size(), placed.status().ToString().c_str());
    return;
  }
  const double placing_ms = placing.ms();
  std::size_t slices = 0;
  std::map<std::string, std::size_t> types;
  for (std::size_t i = 0; i < placed->size(); ++i) {
    (*placed)[i].spec.id = TableId{static_cast<std::uint32_t>(i + 1)};
    slices += (*placed)[i].primary().size();
    ++types[std::string(NameOf((*placed)[i].sharding))];
  }
  std::vector<NodeSpec> nodes = Nodes();
  nodes.push_back(Spare());
  PlanPtr plan = std::make_shared<const Plan>(PlanVersion{1}, "c", nodes, *std::move(placed));
  const std::string whole = wire::ToMessage(DeltaBetween(Plan(), *plan)).SerializeAsString();
  ClientOfPlans client;
  const std::size_t before = InUse();
  const Stopwatch taking;
  client.Take(whole);
  const double taking_ms = taking.ms();
  const std::size_t client_bytes = InUse() - before;
  NodeOfPlans node;
  node.Take(whole);
  std::vector<double> coordinator_ms, node_ms, client_ms;
  std::size_t delta_bytes = 0;
  for (int run = 0; run < kRuns; ++run) {
    const Stopwatch changing;
    auto changed = std::make_shared<TablePlan>(*plan->tables().pointers()[run]);
    changed->spec.optimizer.learning_rate *= 0.5F;
    const std::vector<TablePtr> change = {changed};
    const auto next = std::make_shared<const Plan>(PlanVersion{ToInt(plan->version()) + 1}, "c",
                                                   plan->nodes(), plan->tables().With(change, {}));
    if (!next->ValidateAfter(*plan).ok()) std::abort();
    const std::string delta = wire::ToMessage(DeltaBetween(*plan, *next)).SerializeAsString();
    coordinator_ms.push_back(changing.ms());
    delta_bytes = delta.size();
    plan = next;
    const Stopwatch following;
    client.Take(delta);
    client_ms.push_back(following.ms());
    const Stopwatch installing;
    node.Take(delta);
    node_ms.push_back(installing.ms());
  }
  std::printf("| %zu | %zu | %.1f | %.1f | %.0f | %.0f | %.2f | %.2f | %.2f | %zu |", tables.size(),
              slices, placing_ms / 1000, MiB(whole.size()), MiB(client_bytes), taking_ms,
              Median(coordinator_ms), Median(node_ms), Median(client_ms), delta_bytes);
  for (const auto& [type, count] : types) std::printf(" %s %zu", type.c_str(), count);
  std::printf(" |\n");
  std::fflush(stdout);
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
  std::printf(
      "| tables | slices | placed in s | whole plan MiB | client MiB | client takes it in ms | "
      "ms per change: coordinator | node | client | bytes of a change | types |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const std::size_t count : counts) {
    const auto end = tables.begin() + static_cast<std::ptrdiff_t>(std::min(count, tables.size()));
    Measure({tables.begin(), end});
  }
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
