#include "core/planner/io/plan_json.h"

#include <utility>

#include "core/plan/names.h"
#include "core/planner/io/problem_json.h"
#include "core/planner/io/stored_plan.h"
#include "core/planner/problem/machine.h"
#include "core/planner/problem/names.h"

namespace embla::planner {
namespace {

double Gap(const Solution& solution) {
  if (solution.lower_bound <= 0) return 0;
  return MsFromTicks(solution.max_load) / MsFromTicks(solution.lower_bound) - 1;
}

// Bytes by tier, without the tiers that have none.
Document TiersToJson(const TierBytes& bytes) {
  Document json = Document::object();
  for (std::size_t r = 0; r < kTiers; ++r) {
    if (bytes[r] != 0) json[std::string(NameOf(static_cast<Tier>(r)))] = bytes[r];
  }
  return json;
}

void PutCut(const Cut& cut, Document* json) {
  (*json)["type"] = NameOf(cut.type);
  (*json)["kernel"] = NameOf(cut.kernel);
  (*json)["shards"] = cut.shards();
  (*json)["cut"] = {
      {"width", cut.width}, {"column_blocks", cut.column_blocks}, {"row_blocks", cut.row_blocks}};
}

Document TableToJson(const Planned& planned, const Machine& machine, const Explanation& explanation,
                     std::size_t t) {
  const Table& table = planned.problem.tables[t];
  const Choice& choice = planned.solution.choices[t];
  const TableExplanation& why = explanation.tables[t];
  Document json = {{"name", table.name}, {"rows", table.rows}, {"dim", table.dim}};
  PutCut(choice.cut, &json);
  if (choice.placement == Placement::kEverywhere) {
    json["targets"] = "every allowed device";
  } else {
    Document targets = Document::array();
    for (const std::uint32_t target : choice.targets) {
      targets.push_back(choice.placement == Placement::kHosts
                            ? planned.problem.topology.hosts[target].name
                            : DeviceName(planned.problem, machine, target));
    }
    json["targets"] = std::move(targets);
  }
  json["shard_ms"] = MsFromTicks(why.price.work);
  if (why.price.host_work > 0) json["shard_network_ms"] = MsFromTicks(why.price.host_work);
  Document parts = Document::object();
  for (std::size_t p = 0; p < kCostParts; ++p) {
    if (why.price.parts_ms[p] == 0) continue;
    parts[std::string(NameOf(static_cast<CostPart>(p)))] = why.price.parts_ms[p];
  }
  json["shard_cost_ms"] = std::move(parts);
  json["shard_bytes"] = TiersToJson(why.price.bytes);
  json["bytes"] = TiersToJson(why.price.bytes_total);
  json["reason"] = NameOf(why.reason);
  json["why"] = why.text;
  if (why.runner_up.has_value()) {
    Document runner_up = Document::object();
    PutCut(why.runner_up->cut, &runner_up);
    runner_up["margin_ms"] = why.runner_up->margin_ms;
    json["runner_up"] = std::move(runner_up);
  }
  return json;
}

Document DevicesToJson(const Planned& planned, const Machine& machine) {
  Document devices = Document::array();
  for (std::uint32_t d = 0; d < machine.devices(); ++d) {
    const DeviceUse& use = planned.solution.devices[d];
    devices.push_back({{"name", DeviceName(planned.problem, machine, d)},
                       {"load_ms", MsFromTicks(use.load)},
                       {"load_ticks", use.load},
                       {"bytes", use.bytes},
                       {"bytes_max", machine.capacity[d]}});
  }
  return devices;
}

Document HostsToJson(const Planned& planned, const Machine& machine) {
  Document hosts = Document::array();
  for (std::uint32_t h = 0; h < machine.hosts(); ++h) {
    const HostUse& use = planned.solution.hosts[h];
    hosts.push_back({{"name", planned.problem.topology.hosts[h].name},
                     {"network_ms", MsFromTicks(use.network_load)},
                     {"network_ticks", use.network_load},
                     {"bytes", use.bytes[1]},
                     {"bytes_max", machine.host_capacity[h][1]},
                     {"ssd_bytes", use.bytes[2]},
                     {"ssd_bytes_max", machine.host_capacity[h][2]}});
  }
  return hosts;
}

Document ExplanationToJson(const Planned& planned, const Machine& machine,
                           const Explanation& explanation) {
  Document prices = Document::object();
  for (std::size_t r = 0; r < kTiers; ++r) {
    prices[std::string(NameOf(static_cast<Tier>(r)))] = explanation.ms_per_gib[r];
  }
  Document top = Document::array();
  for (const TopShard& shard : explanation.top) {
    top.push_back({{"table", planned.problem.tables[shard.table].name},
                   {"shards", shard.shards},
                   {"load_ms", MsFromTicks(shard.load)}});
  }
  Document reasons = Document::object();
  for (int i = 0; i < kReasons; ++i) {
    if (explanation.counts[i] == 0) continue;
    reasons[std::string(NameOf(static_cast<Reason>(i)))] = explanation.counts[i];
  }
  const std::uint32_t critical = explanation.critical;
  return {{"bound",
           {{"average_ms", explanation.average_bound_ms},
            {"work_ms", explanation.bound_work_ms},
            {"memory_charge_ms", explanation.bound_memory_charge_ms},
            {"memory_credit_ms", explanation.bound_memory_credit_ms},
            {"certified_ms", MsFromTicks(planned.solution.certificate.bound)},
            {"longest_shard_ms", explanation.longest_shard_ms},
            {"longest_shard_table", explanation.longest_shard_table}}},
          {"memory_price_ms_per_gib", std::move(prices)},
          {"mean_load_ms", explanation.mean_load_ms},
          {"imbalance", explanation.imbalance},
          {"critical", explanation.critical_is_network
                           ? "network of " + planned.problem.topology.hosts[critical].name
                           : DeviceName(planned.problem, machine, critical)},
          {"critical_top", std::move(top)},
          {"reasons", std::move(reasons)}};
}

Document CertificateToJson(const Certificate& certificate) {
  return {{"bound_ticks", certificate.bound},
          {"weight", certificate.weight},
          {"host_weight", certificate.host_weight},
          {"price", certificate.price}};
}

}  // namespace

Document PlanToJson(const Planned& planned, const Explanation& explanation, double solve_ms) {
  const Solution& solution = planned.solution;
  const Machine machine = MachineOf(planned.problem);
  Document tables = Document::array();
  for (std::size_t t = 0; t < solution.choices.size(); ++t) {
    tables.push_back(TableToJson(planned, machine, explanation, t));
  }
  const ProblemDigest digest = DigestOf(planned.problem);
  return {{"format", kPlanFormat},
          {"max_load_ms", MsFromTicks(solution.max_load)},
          {"lower_bound_ms", MsFromTicks(solution.lower_bound)},
          {"gap", Gap(solution)},
          {"solve_ms", solve_ms},
          {"plan_hash", PlanHash(planned.problem, solution)},
          {"cost", NameOf(planned.problem.cost)},
          {"replicas", planned.replicas},
          {"operations", solution.operations},
          {"max_load_ticks", solution.max_load},
          {"lower_bound_ticks", solution.lower_bound},
          {"search_bound_ticks", solution.search_bound},
          {"inputs",
           {{"tables", digest.tables},
            {"topology", digest.topology},
            {"rules", digest.rules},
            {"options", digest.options}}},
          {"explanation", ExplanationToJson(planned, machine, explanation)},
          {"devices", DevicesToJson(planned, machine)},
          {"hosts", HostsToJson(planned, machine)},
          {"tables", std::move(tables)},
          {"certificate", CertificateToJson(solution.certificate)},
          {"problem", ProblemToJson(planned.problem)}};
}

Document ReplanToJson(const Replanned& replanned, const Explanation& explanation, double solve_ms) {
  Document json = PlanToJson(replanned.planned, explanation, solve_ms);
  Document moves = Document::array();
  for (const Move& move : replanned.moves) {
    Document one = {{"table", replanned.planned.problem.tables[move.table].name},
                    {"shard", move.shard},
                    {"from", move.from},
                    {"to", move.to},
                    {"bytes", move.bytes},
                    {"forced", move.forced}};
    if (move.granules > 0) one["granules"] = move.granules;
    moves.push_back(std::move(one));
  }
  json["replan"] = {{"load_before_ms", MsFromTicks(replanned.load_before)},
                    {"target_ms", MsFromTicks(replanned.target)},
                    {"total_bytes", replanned.total_bytes},
                    {"moved_bytes", replanned.moved_bytes},
                    {"forced_bytes", replanned.forced_bytes},
                    {"shed_bound_bytes", replanned.shed_bound_bytes},
                    {"moves", std::move(moves)}};
  return json;
}

}  // namespace embla::planner
