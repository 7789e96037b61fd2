#include "core/plan/plan_json.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/json_fields.h"
#include "core/plan/names.h"

namespace embla {
namespace {

constexpr std::uint64_t kFormat = 1;

template <typename Enum>
std::string Word(Enum value) {
  return std::string(NameOf(value));
}

// Optional fields that a table description may leave out must be looked at to be known.
void ReadOptimizer(JsonFields& fields, OptimizerSpec* spec) {
  fields.MaybeWord("kind", &FromName<OptimizerKind>, &spec->kind);
  fields.MaybeFraction("learning_rate", &spec->learning_rate);
  fields.MaybeFraction("eps", &spec->eps);
  fields.MaybeFraction("beta1", &spec->beta1);
  fields.MaybeFraction("beta2", &spec->beta2);
  fields.MaybeFraction("initial_accumulator", &spec->initial_accumulator);
  fields.MaybeFraction("weight_decay", &spec->weight_decay);
  fields.MaybeWord("weight_decay_mode", &FromName<WeightDecayMode>, &spec->weight_decay_mode);
  fields.MaybeFraction("gradient_clip", &spec->gradient_clip);
  fields.MaybeWord("bias_correction", &FromName<BiasCorrection>, &spec->bias_correction);
}

Json ToJson(const OptimizerSpec& spec) {
  return {{"kind", Word(spec.kind)},
          {"learning_rate", spec.learning_rate},
          {"eps", spec.eps},
          {"beta1", spec.beta1},
          {"beta2", spec.beta2},
          {"initial_accumulator", spec.initial_accumulator},
          {"weight_decay", spec.weight_decay},
          {"weight_decay_mode", Word(spec.weight_decay_mode)},
          {"gradient_clip", spec.gradient_clip},
          {"bias_correction", Word(spec.bias_correction)}};
}

Json ToJson(const ZchSpec& spec) {
  Json json = {{"buckets", spec.buckets},
               {"policy", Word(spec.policy)},
               {"distance_exponent", spec.distance_exponent},
               {"ttl_steps", spec.ttl_steps},
               {"evict_unexpired", spec.evict_unexpired},
               {"admission", Word(spec.admission)},
               {"admission_count", spec.admission_count},
               {"admission_probability", spec.admission_probability},
               {"reserved_lanes", spec.reserved_lanes},
               {"unseen", Word(spec.unseen)}};
  if (spec.eviction_buffer_bytes != 0) json["eviction_buffer_bytes"] = spec.eviction_buffer_bytes;
  return json;
}

absl::StatusOr<ZchSpec> ReadZch(const Json& json) {
  ZchSpec spec;
  JsonFields fields(json, "zch");
  fields.MaybeUnsigned("buckets", zch::kBucketsMax, &spec.buckets);
  fields.MaybeWord("policy", &FromName<zch::Policy>, &spec.policy);
  fields.MaybeUnsigned("distance_exponent", UINT32_MAX, &spec.distance_exponent);
  fields.MaybeUnsigned("ttl_steps", UINT32_MAX, &spec.ttl_steps);
  fields.MaybeFlag("evict_unexpired", &spec.evict_unexpired);
  fields.MaybeWord("admission", &FromName<zch::Admission>, &spec.admission);
  fields.MaybeUnsigned("admission_count", UINT32_MAX, &spec.admission_count);
  fields.MaybeFraction("admission_probability", &spec.admission_probability);
  fields.MaybeUnsigned("reserved_lanes", zch::kLanes, &spec.reserved_lanes);
  fields.MaybeWord("unseen", &FromName<zch::Unseen>, &spec.unseen);
  fields.MaybeUnsigned("eviction_buffer_bytes", &spec.eviction_buffer_bytes);
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  return spec;
}

Json ToJson(const SyncSpec& spec) {
  return {{"step_timeout_ms", spec.step_timeout_ms},
          {"on_silence", Word(spec.on_silence)},
          {"steps_ahead_max", spec.steps_ahead_max}};
}

absl::StatusOr<SyncSpec> ReadSync(const Json& json) {
  SyncSpec spec;
  JsonFields fields(json, "sync");
  fields.MaybeUnsigned("step_timeout_ms", UINT32_MAX, &spec.step_timeout_ms);
  fields.MaybeWord("on_silence", &FromName<OnSilence>, &spec.on_silence);
  fields.MaybeUnsigned("steps_ahead_max", UINT32_MAX, &spec.steps_ahead_max);
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  return spec;
}

Json ToJson(const std::vector<Rank>& ranks) {
  Json json = Json::array();
  for (const Rank rank : ranks) json.push_back(ToInt(rank));
  return json;
}

absl::StatusOr<std::vector<Rank>> ReadRanks(const Json& json) {
  std::vector<Rank> ranks;
  for (const Json& rank : json) {
    const bool is_next = rank.is_number_unsigned() && rank.get<std::uint64_t>() <= UINT32_MAX &&
                         (ranks.empty() || rank.get<std::uint64_t>() > ToInt(ranks.back()));
    if (!is_next) return absl::InvalidArgumentError("ranks are not ascending 32-bit numbers");
    ranks.push_back(Rank{rank.get<std::uint32_t>()});
  }
  return ranks;
}

Json ToJson(const StepPlan& plan) {
  Json members = Json::array();
  for (const StepMembers& entry : plan.members) {
    Json& json = members.emplace_back();
    json = {{"first_step", entry.first_step}, {"ranks", ToJson(entry.ranks)}};
    if (!entry.optional.empty()) json["optional"] = ToJson(entry.optional);
  }
  Json json = {
      {"version", ToInt(plan.version)}, {"changes", plan.changes}, {"members", std::move(members)}};
  if (plan.open.has_value()) {
    json["open"] = {{"kind", Word(plan.open->kind)},
                    {"step", plan.open->step},
                    {"ranks", ToJson(plan.open->ranks)}};
  }
  return json;
}

absl::StatusOr<StepMembers> ReadMembers(const Json& json) {
  JsonFields fields(json, "members");
  StepMembers members;
  members.first_step = fields.Unsigned("first_step", 0, UINT64_MAX);
  const Json& ranks = fields.Array("ranks");
  const Json none = Json::array();
  const Json& optional = fields.Has("optional") ? fields.Array("optional") : none;
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  EMBLA_ASSIGN_OR_RETURN(members.ranks, ReadRanks(ranks));
  EMBLA_ASSIGN_OR_RETURN(members.optional, ReadRanks(optional));
  return members;
}

absl::StatusOr<MemberChange> ReadChange(const Json& json, std::uint64_t number) {
  JsonFields fields(json, "open change");
  MemberChange change{.number = number};
  fields.Text("kind");
  fields.MaybeWord("kind", &FromName<MemberChange::Kind>, &change.kind);
  change.step = fields.Unsigned("step", 0, UINT64_MAX);
  const Json& ranks = fields.Array("ranks");
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  EMBLA_ASSIGN_OR_RETURN(change.ranks, ReadRanks(ranks));
  if (change.ranks.empty()) return absl::InvalidArgumentError("an open change has no ranks");
  return change;
}

absl::StatusOr<StepPlan> ReadStepPlan(const Json& json) {
  JsonFields fields(json, "steps");
  StepPlan plan;
  plan.version = PlanVersion{fields.Unsigned("version", 0, UINT64_MAX)};
  plan.changes = fields.Unsigned("changes", 0, UINT64_MAX);
  const Json& members = fields.Array("members");
  const Json* const open = fields.Has("open") ? &fields.Object("open") : nullptr;
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  for (const Json& entry : members) {
    EMBLA_ASSIGN_OR_RETURN(StepMembers next, ReadMembers(entry));
    if (!plan.members.empty() && next.first_step <= plan.members.back().first_step) {
      return absl::InvalidArgumentError("members of steps are not ascending");
    }
    plan.members.push_back(std::move(next));
  }
  if (open != nullptr) {
    EMBLA_ASSIGN_OR_RETURN(plan.open, ReadChange(*open, plan.changes));
  }
  return plan;
}

Json ToJson(const TableSpec& spec) {
  Json json = {{"id", ToInt(spec.id)},
               {"name", spec.name},
               {"rows", spec.rows},
               {"dim", spec.dim},
               {"dtype", Word(spec.dtype)},
               {"row_granules", spec.row_granules},
               {"column_granule_width", spec.column_granule_width},
               {"optimizer", ToJson(spec.optimizer)},
               {"init", {{"kind", Word(spec.init.kind)}, {"a", spec.init.a}, {"b", spec.init.b}}},
               {"seed", spec.seed},
               {"rounding", Word(spec.rounding)},
               {"bounds", Word(spec.bounds)},
               {"nan_policy", Word(spec.nan_policy)}};
  if (spec.durability != TableDurability::kNode) json["durability"] = Word(spec.durability);
  if (!spec.callers.empty()) json["callers"] = spec.callers;
  if (spec.lookups_per_sample != 1.0f) json["lookups_per_sample"] = spec.lookups_per_sample;
  if (spec.zch.has_value()) json["zch"] = ToJson(*spec.zch);
  if (spec.sync.has_value()) json["sync"] = ToJson(*spec.sync);
  // Left out where there are no groups: readers from before groups take such tables as they are.
  if (spec.replica_groups == 1) return json;
  json["replica_groups"] = spec.replica_groups;
  json["sync_every_steps"] = spec.sync_every_steps;
  return json;
}

Json ToJson(const Slice& slice) {
  return {{"rows", {slice.row_begin, slice.row_end}},
          {"columns", {slice.column_begin, slice.column_end}},
          {"node", ToInt(slice.device.node)},
          {"device", slice.device.index}};
}

Json ToJson(const TablePlan& table) {
  Json replicas = Json::array();
  for (const std::vector<Slice>& replica : table.replicas) {
    Json slices = Json::array();
    for (const Slice& slice : replica) slices.push_back(ToJson(slice));
    replicas.push_back(std::move(slices));
  }
  Json json = {{"spec", ToJson(table.spec)},
               {"sharding", Word(table.sharding)},
               {"replicas", std::move(replicas)}};
  if (table.aside) json["aside"] = true;
  if (table.steps != StepPlan{}) json["steps"] = ToJson(table.steps);
  return json;
}

Json ToJson(const NodeSpec& node) {
  Json devices = Json::array();
  for (const DeviceSpec& device : node.devices) {
    Json& json = devices.emplace_back();
    json = {{"kind", Word(device.kind)}, {"memory_bytes", device.memory_bytes}};
    if (device.memory_bytes_per_second != 0) {
      json["memory_bytes_per_second"] = device.memory_bytes_per_second;
    }
    if (device.peer_access) json["peer_access"] = true;
  }
  return {{"id", ToInt(node.id)},
          {"name", node.name},
          {"address", node.address},
          {"devices", std::move(devices)}};
}

absl::StatusOr<TableSpec> ReadTableSpec(const Json& json) {
  TableSpec spec;
  JsonFields fields(json, "table");
  std::uint32_t id = 0;
  fields.MaybeUnsigned("id", UINT32_MAX, &id);
  spec.id = TableId{id};
  spec.name = fields.Text("name");
  spec.rows = fields.Signed("rows", 1, kRowsMax);
  spec.dim = static_cast<std::uint32_t>(fields.Unsigned("dim", 1, kDimMax));
  fields.MaybeWord("dtype", &FromName<DType>, &spec.dtype);
  fields.MaybeUnsigned("row_granules", kRowGranulesMax, &spec.row_granules);
  fields.MaybeUnsigned("column_granule_width", kDimMax, &spec.column_granule_width);
  if (fields.Has("optimizer")) {
    JsonFields optimizer(fields.Object("optimizer"), "optimizer");
    ReadOptimizer(optimizer, &spec.optimizer);
    EMBLA_RETURN_IF_ERROR(optimizer.Finish());
  }
  if (fields.Has("init")) {
    JsonFields init(fields.Object("init"), "init");
    init.MaybeWord("kind", &FromName<InitKind>, &spec.init.kind);
    init.MaybeFraction("a", &spec.init.a);
    init.MaybeFraction("b", &spec.init.b);
    EMBLA_RETURN_IF_ERROR(init.Finish());
  }
  if (fields.Has("zch")) {
    EMBLA_ASSIGN_OR_RETURN(spec.zch, ReadZch(fields.Object("zch")));
  }
  if (fields.Has("sync")) {
    EMBLA_ASSIGN_OR_RETURN(spec.sync, ReadSync(fields.Object("sync")));
  }
  fields.MaybeUnsigned("seed", &spec.seed);
  fields.MaybeWord("rounding", &FromName<Rounding>, &spec.rounding);
  fields.MaybeWord("bounds", &FromName<BoundsMode>, &spec.bounds);
  fields.MaybeWord("nan_policy", &FromName<NanPolicy>, &spec.nan_policy);
  fields.MaybeWord("durability", &FromName<TableDurability>, &spec.durability);
  fields.MaybeTexts("callers", &spec.callers);
  fields.MaybeFraction("lookups_per_sample", &spec.lookups_per_sample);
  fields.MaybeUnsigned("replica_groups", kReplicaGroupsMax, &spec.replica_groups);
  fields.MaybeUnsigned("sync_every_steps", UINT32_MAX, &spec.sync_every_steps);
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  return spec;
}

// [begin, end], end not included, both 0..max.
absl::Status ReadRange(const Json& json, std::string_view what, std::uint64_t max,
                       std::uint64_t* begin, std::uint64_t* end) {
  const bool pair =
      json.size() == 2 && json[0].is_number_unsigned() && json[1].is_number_unsigned();
  if (pair) {
    *begin = json[0].get<std::uint64_t>();
    *end = json[1].get<std::uint64_t>();
    if (*begin <= max && *end <= max) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("slice ", ToAbsl(what), " is not [begin, end] with numbers of 0 to ", max));
}

absl::StatusOr<Slice> ReadSlice(const Json& json) {
  JsonFields fields(json, "slice");
  const Json& rows = fields.Array("rows");
  const Json& columns = fields.Array("columns");
  Slice slice;
  slice.device.node = NodeId{static_cast<std::uint32_t>(fields.Unsigned("node", 1, UINT32_MAX))};
  slice.device.index = static_cast<std::uint32_t>(fields.Unsigned("device", 0, UINT32_MAX));
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  EMBLA_RETURN_IF_ERROR(ReadRange(rows, "rows", kRowsMax, &begin, &end));
  slice.row_begin = static_cast<std::int64_t>(begin);
  slice.row_end = static_cast<std::int64_t>(end);
  EMBLA_RETURN_IF_ERROR(ReadRange(columns, "columns", kDimMax, &begin, &end));
  slice.column_begin = static_cast<std::uint32_t>(begin);
  slice.column_end = static_cast<std::uint32_t>(end);
  return slice;
}

absl::StatusOr<TablePlan> ReadTablePlan(const Json& json) {
  JsonFields fields(json, "table plan");
  TablePlan table;
  const Json& spec = fields.Object("spec");
  const Json& replicas = fields.Array("replicas");
  fields.Text("sharding");
  fields.MaybeWord("sharding", &FromName<ShardingType>, &table.sharding);
  fields.MaybeFlag("aside", &table.aside);
  const Json* const steps = fields.Has("steps") ? &fields.Object("steps") : nullptr;
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  EMBLA_ASSIGN_OR_RETURN(table.spec, ReadTableSpec(spec));
  if (steps != nullptr) {
    EMBLA_ASSIGN_OR_RETURN(table.steps, ReadStepPlan(*steps));
  }
  for (const Json& replica : replicas) {
    if (!replica.is_array()) return absl::InvalidArgumentError("a replica is not an array");
    std::vector<Slice>& slices = table.replicas.emplace_back();
    slices.reserve(replica.size());
    for (const Json& slice_json : replica) {
      EMBLA_ASSIGN_OR_RETURN(const Slice slice, ReadSlice(slice_json));
      slices.push_back(slice);
    }
  }
  if (!table.spec.sync.has_value() && table.steps != StepPlan{}) {
    return absl::InvalidArgumentError(absl::StrCat(
        "plan of table ", table.spec.name, " has steps, but the table has no synchronous steps"));
  }
  EMBLA_RETURN_IF_ERROR(Annotate(table.Validate(), "plan of table " + table.spec.name));
  return table;
}

absl::StatusOr<NodeSpec> ReadNode(const Json& json) {
  JsonFields fields(json, "node");
  NodeSpec node;
  node.id = NodeId{static_cast<std::uint32_t>(fields.Unsigned("id", 1, UINT32_MAX))};
  node.name = fields.Text("name");
  node.address = fields.Text("address");
  const Json& devices = fields.Array("devices");
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  for (const Json& device_json : devices) {
    JsonFields device(device_json, "device");
    DeviceSpec spec;
    device.Text("kind");
    device.MaybeWord("kind", &FromName<DeviceKind>, &spec.kind);
    spec.memory_bytes = device.Signed("memory_bytes", 0, INT64_MAX);
    if (device.Has("memory_bytes_per_second")) {
      spec.memory_bytes_per_second = device.Signed("memory_bytes_per_second", 0, INT64_MAX);
    }
    device.MaybeFlag("peer_access", &spec.peer_access);
    EMBLA_RETURN_IF_ERROR(device.Finish());
    node.devices.push_back(spec);
  }
  EMBLA_RETURN_IF_ERROR(ValidateNode(node));
  return node;
}

template <typename Value>
absl::StatusOr<Value> Parse(std::string_view text, absl::StatusOr<Value> (*read)(const Json&)) {
  EMBLA_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  return read(json);
}

absl::StatusOr<Plan> ReadPlan(const Json& json) {
  JsonFields fields(json, "plan");
  fields.Unsigned("format", kFormat, kFormat);
  const std::uint64_t version = fields.Unsigned("version", 0, UINT64_MAX);
  std::string cluster_id = fields.Text("cluster_id");
  const Json& nodes_json = fields.Array("nodes");
  const Json& tables_json = fields.Array("tables");
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  std::vector<NodeSpec> nodes;
  for (const Json& node_json : nodes_json) {
    EMBLA_ASSIGN_OR_RETURN(nodes.emplace_back(), ReadNode(node_json));
  }
  std::vector<TablePlan> tables;
  for (const Json& table_json : tables_json) {
    EMBLA_ASSIGN_OR_RETURN(tables.emplace_back(), ReadTablePlan(table_json));
  }
  Plan plan(PlanVersion{version}, std::move(cluster_id), std::move(nodes), std::move(tables));
  EMBLA_RETURN_IF_ERROR(plan.Validate());
  return plan;
}

}  // namespace

std::string PlanToJson(const Plan& plan) {
  Json nodes = Json::array();
  for (const NodeSpec& node : plan.nodes()) nodes.push_back(ToJson(node));
  Json tables = Json::array();
  for (const TablePlan& table : plan.tables()) tables.push_back(ToJson(table));
  return DumpJson({{"format", kFormat},
                   {"version", ToInt(plan.version())},
                   {"cluster_id", plan.cluster_id()},
                   {"nodes", std::move(nodes)},
                   {"tables", std::move(tables)}});
}

absl::StatusOr<Plan> PlanFromJson(std::string_view json) { return Parse(json, &ReadPlan); }

std::string TablePlanToJson(const TablePlan& table) { return DumpJson(ToJson(table)); }

absl::StatusOr<TablePlan> TablePlanFromJson(std::string_view json) {
  return Parse(json, &ReadTablePlan);
}

std::string NodeSpecToJson(const NodeSpec& node) { return DumpJson(ToJson(node)); }

absl::StatusOr<NodeSpec> NodeSpecFromJson(std::string_view json) { return Parse(json, &ReadNode); }

std::string StepPlanToJson(const StepPlan& steps) { return DumpJson(ToJson(steps)); }

absl::StatusOr<StepPlan> StepPlanFromJson(std::string_view json) {
  return Parse(json, &ReadStepPlan);
}

std::string TableSpecToJson(const TableSpec& spec) { return DumpJson(ToJson(spec)); }

absl::StatusOr<TableSpec> TableSpecFromJson(std::string_view json) {
  return Parse(json, &ReadTableSpec);
}

}  // namespace embla
