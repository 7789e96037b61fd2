#include "core/planner/io/plan_json.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/names.h"
#include "core/planner/io/problem_json.h"
#include "core/planner/io/topology_json.h"
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

constexpr std::int64_t kAny = INT64_MAX;

absl::Status ReadCut(Fields& fields, Cut* cut) {
  fields.Need("type");
  fields.Need("kernel");
  fields.Need("cut");
  fields.Word("type", &FromName<ShardingType>, &cut->type);
  fields.Word("kernel", &KernelFromName, &cut->kernel);
  Fields sizes(fields.Object("cut"), "cut");
  sizes.Integer("width", 1u, kDimMax, &cut->width);
  sizes.Integer("column_blocks", 1u, kDimMax, &cut->column_blocks);
  sizes.Integer("row_blocks", 1u, static_cast<std::uint32_t>(kDevicesMax), &cut->row_blocks);
  return sizes.Finish();
}

absl::Status ReadChoice(const Document& json, StoredChoice* choice) {
  Fields fields(json, "table");
  fields.Need("name");
  fields.Need("targets");
  fields.Text("name", &choice->table);
  EMBLA_RETURN_IF_ERROR(ReadCut(fields, &choice->cut));
  const ShardingType type = choice->cut.type;
  if (fields.Any("targets").is_string()) {
    choice->placement = Placement::kEverywhere;
  } else {
    choice->placement = type == ShardingType::kTableRowWise || type == ShardingType::kGridShard
                            ? Placement::kHosts
                            : Placement::kShards;
    fields.Texts("targets", &choice->targets);
  }
  // The rest is for people: shard_ms, bytes, why ...
  return fields.FinishIgnoringOthers();
}

absl::Status ReadDevice(const Document& json, StoredPlan* plan) {
  Fields fields(json, "device");
  DeviceUse use;
  for (const std::string_view needed : {"name", "load_ticks", "bytes"}) fields.Need(needed);
  fields.Text("name", &plan->devices.emplace_back());
  fields.Integer("load_ticks", 0, kAny, &use.load);
  fields.Integer("bytes", 0, kAny, &use.bytes);
  plan->solution.devices.push_back(use);
  return fields.FinishIgnoringOthers();
}

absl::Status ReadHost(const Document& json, StoredPlan* plan) {
  Fields fields(json, "host");
  HostUse use;
  for (const std::string_view needed : {"name", "network_ticks", "bytes"}) fields.Need(needed);
  fields.Text("name", &plan->hosts.emplace_back());
  fields.Integer("network_ticks", 0, kAny, &use.network_load);
  fields.Integer("bytes", 0, kAny, &use.bytes[1]);
  fields.Integer("ssd_bytes", 0, kAny, &use.bytes[2]);
  plan->solution.hosts.push_back(use);
  return fields.FinishIgnoringOthers();
}

absl::Status ReadCertificate(const Document& json, Certificate* certificate) {
  Fields fields(json, "certificate");
  for (const std::string_view needed : {"bound_ticks", "weight", "price"}) fields.Need(needed);
  fields.Integer("bound_ticks", 0, kAny, &certificate->bound);
  fields.Integer("host_weight", 0, kAny, &certificate->host_weight);
  fields.Integers("weight", &certificate->weight);
  std::vector<std::int64_t> price;
  fields.Integers("price", &price);
  if (price.size() == kTiers) {
    std::copy(price.begin(), price.end(), certificate->price.begin());
  } else {
    fields.Fail("price", "is not one number for each of the three tiers");
  }
  return fields.Finish();
}

absl::Status ReadInputs(const Document& json, ProblemDigest* digest) {
  Fields fields(json, "inputs");
  fields.Text("tables", &digest->tables);
  fields.Text("topology", &digest->topology);
  fields.Text("rules", &digest->rules);
  fields.Text("options", &digest->options);
  return fields.Finish();
}

// Reads every item of a list.
template <typename Read>
absl::Status ReadList(const Document& list, std::string_view name, Read read) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    EMBLA_RETURN_IF_ERROR(Annotate(read(list[i]), ToStd(absl::StrCat(ToAbsl(name), "[", i, "]"))));
  }
  return absl::OkStatus();
}

using Numbers = absl::flat_hash_map<std::string, std::uint32_t>;

template <typename Names>
Numbers NumberOf(const Names& names) {
  Numbers numbers;
  for (const auto& name : names) {
    numbers.try_emplace(name, static_cast<std::uint32_t>(numbers.size()));
  }
  return numbers;
}

std::vector<std::string> DeviceNames(const Problem& problem, const Machine& machine) {
  std::vector<std::string> names;
  for (std::uint32_t d = 0; d < machine.devices(); ++d) {
    names.push_back(DeviceName(problem, machine, d));
  }
  return names;
}

// The two lists have the same names in the same order; the message names the first that differs.
absl::Status SameNames(std::string_view what, const std::vector<std::string>& plan,
                       const std::vector<std::string>& problem) {
  for (std::size_t i = 0; i < std::max(plan.size(), problem.size()); ++i) {
    if (i < plan.size() && i < problem.size() && plan[i] == problem[i]) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the plan has ", plan.size(), " ", ToAbsl(what), "s, the input has ", problem.size(),
        "; the first that differs: ", i < plan.size() ? plan[i] : "none", " and ",
        i < problem.size() ? problem[i] : "none"));
  }
  return absl::OkStatus();
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
  return {{"format", "embla-plan-1"},
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

absl::StatusOr<Planned> PlannedOf(const StoredPlan& plan) {
  Planned planned;
  EMBLA_ASSIGN_OR_RETURN(planned.solution, BindPlan(plan, plan.problem));
  planned.problem = plan.problem;
  planned.replicas = plan.replicas;
  return planned;
}

absl::StatusOr<StoredPlan> PlanFromJson(std::string_view text) {
  EMBLA_ASSIGN_OR_RETURN(const Document document, ParseDocument(text));
  Fields fields(document, "plan");
  StoredPlan plan;
  std::string format;
  for (const std::string_view needed :
       {"format", "plan_hash", "inputs", "devices", "hosts", "tables", "certificate", "problem",
        "max_load_ticks", "lower_bound_ticks"}) {
    fields.Need(needed);
  }
  fields.Text("format", &format);
  if (format != "embla-plan-1") fields.Fail("format", "is not embla-plan-1");
  fields.Text("plan_hash", &plan.plan_hash);
  fields.Integer("replicas", 1u, static_cast<std::uint32_t>(kDevicesMax), &plan.replicas);
  Solution& solution = plan.solution;
  fields.Integer("operations", 0, kAny, &solution.operations);
  fields.Integer("max_load_ticks", 0, kAny, &solution.max_load);
  fields.Integer("lower_bound_ticks", 0, kAny, &solution.lower_bound);
  fields.Integer("search_bound_ticks", 0, kAny, &solution.search_bound);
  const Document& inputs = fields.Object("inputs");
  const Document& devices = fields.Array("devices");
  const Document& hosts = fields.Array("hosts");
  const Document& tables = fields.Array("tables");
  const Document& certificate = fields.Object("certificate");
  const Document& problem = fields.Object("problem");
  EMBLA_RETURN_IF_ERROR(fields.FinishIgnoringOthers());
  EMBLA_RETURN_IF_ERROR(ReadInputs(inputs, &plan.inputs));
  EMBLA_RETURN_IF_ERROR(
      ReadList(devices, "devices", [&](const Document& d) { return ReadDevice(d, &plan); }));
  EMBLA_RETURN_IF_ERROR(
      ReadList(hosts, "hosts", [&](const Document& h) { return ReadHost(h, &plan); }));
  EMBLA_RETURN_IF_ERROR(ReadList(tables, "tables", [&](const Document& t) {
    return ReadChoice(t, &plan.tables.emplace_back());
  }));
  EMBLA_RETURN_IF_ERROR(ReadCertificate(certificate, &solution.certificate));
  EMBLA_RETURN_IF_ERROR(ReadProblem(problem, &plan.problem));
  plan.problem = Canonical(std::move(plan.problem));
  EMBLA_RETURN_IF_ERROR(Validate(plan.problem));
  return plan;
}

absl::StatusOr<Solution> BindPlan(const StoredPlan& plan, const Problem& canonical) {
  const Machine machine = MachineOf(canonical);
  const std::vector<std::string> device_names = DeviceNames(canonical, machine);
  std::vector<std::string> host_names, table_names, planned_tables;
  for (const Host& host : canonical.topology.hosts) host_names.push_back(host.name);
  for (const Table& table : canonical.tables) table_names.push_back(table.name);
  for (const StoredChoice& choice : plan.tables) planned_tables.push_back(choice.table);
  EMBLA_RETURN_IF_ERROR(SameNames("device", plan.devices, device_names));
  EMBLA_RETURN_IF_ERROR(SameNames("host", plan.hosts, host_names));
  EMBLA_RETURN_IF_ERROR(SameNames("table", planned_tables, table_names));
  const Numbers devices = NumberOf(device_names);
  const Numbers hosts = NumberOf(host_names);
  Solution solution = plan.solution;
  for (const StoredChoice& stored : plan.tables) {
    Choice choice{stored.cut, stored.placement, {}};
    const Numbers& numbers = stored.placement == Placement::kHosts ? hosts : devices;
    for (const std::string& target : stored.targets) {
      const auto it = numbers.find(target);
      if (it == numbers.end()) {
        return absl::FailedPreconditionError(
            absl::StrCat("table ", stored.table, ": there is no device or host ", target));
      }
      choice.targets.push_back(it->second);
    }
    solution.choices.push_back(std::move(choice));
  }
  return solution;
}

}  // namespace embla::planner
