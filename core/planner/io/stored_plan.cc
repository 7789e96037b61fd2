#include "core/planner/io/stored_plan.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/names.h"
#include "core/planner/io/fields.h"
#include "core/planner/io/problem_json.h"
#include "core/planner/io/topology_json.h"
#include "core/planner/problem/machine.h"
#include "core/planner/problem/names.h"

namespace embla::planner {
namespace {

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
  if (fields.Any("targets").is_string()) {
    choice->placement = Placement::kEverywhere;
  } else {
    choice->placement =
        TraitsOf(choice->cut.type).shares_hosts ? Placement::kHosts : Placement::kShards;
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
  if (format != kPlanFormat) fields.Fail("format", "is not " + std::string(kPlanFormat));
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
