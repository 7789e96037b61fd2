#include "server/coordinator/state_records.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/json_fields.h"
#include "core/plan/plan_json.h"

namespace embla {
namespace {

constexpr std::string_view kClusterKey = "cluster";
constexpr std::string_view kHeadKey = "plan/head";
constexpr std::string_view kNodesPrefix = "plan/nodes/";
constexpr std::string_view kTablesPrefix = "plan/tables/";
constexpr std::string_view kPendingKey = "plan/pending";
constexpr std::uint64_t kFormat = 1;

template <typename Id>
std::string KeyOf(std::string_view prefix, Id id) {
  return absl::StrCat(ToAbsl(prefix), absl::StrFormat("%010d", ToInt(id)));
}

std::string HeadToJson(const PlanHead& head) {
  Json json = {{"version", ToInt(head.version)},
               {"next_node_id", head.next_node_id},
               {"next_table_id", head.next_table_id},
               {"generation", head.generation}};
  if (!head.gaps.empty()) json["gaps"] = GapsToJson(head.gaps);
  return DumpJson(json);
}

absl::StatusOr<PlanHead> HeadFromJson(std::string_view text) {
  EMBLA_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  JsonFields fields(json, "plan head");
  PlanHead head;
  head.version = PlanVersion{fields.Unsigned("version", 1, UINT64_MAX)};
  head.next_node_id = static_cast<std::uint32_t>(fields.Unsigned("next_node_id", 1, UINT32_MAX));
  head.next_table_id = static_cast<std::uint32_t>(fields.Unsigned("next_table_id", 1, UINT32_MAX));
  fields.MaybeUnsigned("generation", &head.generation);
  if (fields.Has("gaps")) {
    EMBLA_ASSIGN_OR_RETURN(head.gaps, GapsFromJson(fields.Array("gaps")));
  }
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  return head;
}

std::string PendingToJson(const PendingCreate& pending) {
  return DumpJson({{"table_id", ToInt(pending.first)},
                   {"tables", pending.count},
                   {"version", ToInt(pending.version)},
                   {"deadline_unix_ms", absl::ToUnixMillis(pending.deadline)}});
}

absl::StatusOr<PendingCreate> PendingFromJson(std::string_view text) {
  EMBLA_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  JsonFields fields(json, "pending creation");
  PendingCreate pending;
  pending.first = TableId{static_cast<std::uint32_t>(fields.Unsigned("table_id", 1, UINT32_MAX))};
  fields.MaybeUnsigned("tables", UINT32_MAX, &pending.count);
  pending.version = PlanVersion{fields.Unsigned("version", 1, UINT64_MAX)};
  pending.deadline = absl::FromUnixMillis(fields.Signed("deadline_unix_ms", 0, INT64_MAX));
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  return pending;
}

absl::StatusOr<std::string> ClusterIdFromJson(std::string_view text) {
  EMBLA_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  JsonFields fields(json, "cluster");
  std::string cluster_id = fields.Text("cluster_id");
  fields.Unsigned("format", kFormat, kFormat);
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  return cluster_id;
}

// The store kept what it was given, so a value that does not parse is no user's mistake.
absl::Status Unreadable(const absl::Status& status, std::string_view key) {
  return absl::DataLossError(
      absl::StrCat("state key ", ToAbsl(key), " is not readable: ", status.message()));
}

template <typename Value>
absl::StatusOr<Value> Parse(const StateEntry& entry,
                            absl::StatusOr<Value> (*parse)(std::string_view)) {
  absl::StatusOr<Value> value = parse(entry.value);
  if (!value.ok()) return Unreadable(value.status(), entry.key);
  return value;
}

template <typename Value>
absl::StatusOr<std::vector<Value>> ParseAll(const StateStore& store, std::string_view prefix,
                                            absl::StatusOr<Value> (*parse)(std::string_view)) {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<StateEntry> entries, store.List(prefix));
  std::vector<Value> values;
  for (const StateEntry& entry : entries) {
    EMBLA_ASSIGN_OR_RETURN(values.emplace_back(), Parse(entry, parse));
  }
  return values;
}

absl::Status CreateCluster(StateStore& store, const std::string& cluster_id) {
  const PlanHead head{.version = PlanVersion{1}};
  const StateCompare compares[] = {{std::string(kClusterKey), kAbsent},
                                   {std::string(kHeadKey), kAbsent}};
  const StateWrite writes[] = {
      {std::string(kClusterKey), DumpJson({{"cluster_id", cluster_id}, {"format", kFormat}})},
      {std::string(kHeadKey), HeadToJson(head)}};
  return store.Commit(compares, writes).status();
}

// A missing record of a cluster that exists is no NotFound for the caller.
absl::StatusOr<StateEntry> GetRequired(const StateStore& store, std::string_view key) {
  absl::StatusOr<StateEntry> entry = store.Get(key);
  if (absl::IsNotFound(entry.status())) return Unreadable(entry.status(), key);
  return entry;
}

bool HasAll(const Plan& plan, const PendingCreate& pending) {
  for (std::uint32_t i = 0; i < pending.count; ++i) {
    if (plan.FindTable(TableId{ToInt(pending.first) + i}) == nullptr) return false;
  }
  return true;
}

// Replaces the value with `value`'s id, or adds it.
template <typename Value, typename IdOf>
void PutById(const Value& value, const IdOf& id_of, std::vector<Value>* values) {
  for (Value& old : *values) {
    if (id_of(old) != id_of(value)) continue;
    old = value;
    return;
  }
  values->push_back(value);
}

}  // namespace

absl::StatusOr<StateRecords::Loaded> StateRecords::Load(StateStore& store,
                                                        const std::string& new_cluster_id) {
  if (absl::IsNotFound(store.Get(kClusterKey).status())) {
    EMBLA_RETURN_IF_ERROR(CreateCluster(store, new_cluster_id));
  }
  EMBLA_ASSIGN_OR_RETURN(const StateEntry cluster, GetRequired(store, kClusterKey));
  EMBLA_ASSIGN_OR_RETURN(std::string cluster_id, Parse(cluster, &ClusterIdFromJson));
  EMBLA_ASSIGN_OR_RETURN(const StateEntry head, GetRequired(store, kHeadKey));
  Loaded loaded;
  StateRecords& records = loaded.records;
  EMBLA_ASSIGN_OR_RETURN(records.head_, Parse(head, &HeadFromJson));
  records.head_revision_ = head.revision;
  if (const auto pending = store.Get(kPendingKey); pending.ok()) {
    EMBLA_ASSIGN_OR_RETURN(records.pending_, Parse(*pending, &PendingFromJson));
  } else if (!absl::IsNotFound(pending.status())) {
    return pending.status();
  }
  EMBLA_ASSIGN_OR_RETURN(auto nodes, ParseAll(store, kNodesPrefix, &NodeSpecFromJson));
  EMBLA_ASSIGN_OR_RETURN(auto tables, ParseAll(store, kTablesPrefix, &TablePlanFromJson));
  auto plan = std::make_shared<const Plan>(records.head_.version, std::move(cluster_id),
                                           std::move(nodes), std::move(tables));
  if (const absl::Status valid = plan->Validate(); !valid.ok()) return Unreadable(valid, "plan/");
  if (records.pending_ && !HasAll(*plan, *records.pending_)) {
    return Unreadable(absl::NotFoundError("one of its tables is not in the plan"), kPendingKey);
  }
  loaded.plan = std::move(plan);
  return loaded;
}

PlanChange StateRecords::ChangeOf(const Plan& plan, const PlanEdit& edit, PlanVersion version) {
  PlanChange change{.version = version,
                    .at = absl::FromUnixMillis(absl::ToUnixMillis(edit.at)),
                    .cause = edit.cause,
                    .node = {},
                    .node_before = {},
                    .tables = {}};
  if (edit.node) change.node = edit.node->id;
  if (edit.drop_node) change.node = *edit.drop_node;
  if (const NodeSpec* const node = plan.FindNode(change.node)) change.node_before = *node;
  for (const TablePlan& table : edit.tables) {
    change.tables.push_back(TableBefore::Of(table.spec.id, plan.FindTable(table.spec.id), &table));
  }
  for (const TableId id : edit.drop_tables) {
    change.tables.push_back(TableBefore::Of(id, plan.FindTable(id), nullptr));
  }
  return change;
}

void StateRecords::GiveIds(PlanEdit* edit, PlanHead* head) {
  if (edit->jump) {
    *head = *edit->jump;
  } else {
    head->version = PlanVersion{ToInt(head->version) + 1};
  }
  if (edit->node && edit->node->id == NodeId{}) edit->node->id = NodeId{head->next_node_id++};
  for (TablePlan& table : edit->tables) {
    if (table.spec.id == TableId{}) table.spec.id = TableId{head->next_table_id++};
  }
}

absl::StatusOr<PlanPtr> StateRecords::Commit(StateStore& store, const Plan& plan, PlanEdit edit) {
  PlanHead head = head_;
  GiveIds(&edit, &head);
  std::optional<PendingCreate> pending = pending_;
  std::vector<NodeSpec> nodes = plan.nodes();
  std::vector<TablePtr> changed_tables;
  std::vector<StateWrite> writes = {{std::string(kHeadKey), HeadToJson(head)}};
  AppendHistoryWrites(ChangeOf(plan, edit, head.version), &writes);
  if (edit.node) {
    PutById(
        *edit.node, [](const NodeSpec& node) { return node.id; }, &nodes);
    writes.push_back({KeyOf(kNodesPrefix, edit.node->id), NodeSpecToJson(*edit.node)});
  }
  for (TablePlan& table : edit.tables) {
    writes.push_back({KeyOf(kTablesPrefix, table.spec.id), TablePlanToJson(table)});
    changed_tables.push_back(std::make_shared<const TablePlan>(std::move(table)));
  }
  for (const TableId table : edit.drop_tables) {
    writes.push_back({KeyOf(kTablesPrefix, table), std::nullopt});
  }
  if (edit.drop_node) {
    std::erase_if(nodes, [&](const NodeSpec& node) { return node.id == *edit.drop_node; });
    writes.push_back({KeyOf(kNodesPrefix, *edit.drop_node), std::nullopt});
  }
  if (edit.pending_until) {
    EMBLA_CHECK(!changed_tables.empty() && !pending);
    pending = PendingCreate{changed_tables.front()->spec.id,
                            static_cast<std::uint32_t>(changed_tables.size()), head.version,
                            *edit.pending_until};
    writes.push_back({std::string(kPendingKey), PendingToJson(*pending)});
  }
  if (edit.pending_done) {
    pending.reset();
    writes.push_back({std::string(kPendingKey), std::nullopt});
  }
  auto next = std::make_shared<const Plan>(head.version, plan.cluster_id(), std::move(nodes),
                                           plan.tables().With(changed_tables, edit.drop_tables));
  EMBLA_RETURN_IF_ERROR(next->ValidateAfter(plan));
  edit.compares.push_back({std::string(kHeadKey), head_revision_});
  std::ranges::move(edit.writes, std::back_inserter(writes));
  EMBLA_ASSIGN_OR_RETURN(head_revision_, store.Commit(edit.compares, writes));
  head_ = head;
  pending_ = pending;
  return next;
}

absl::Status StateRecords::ClearPending(StateStore& store) {
  const StateCompare compares[] = {{std::string(kHeadKey), head_revision_}};
  const StateWrite writes[] = {{std::string(kPendingKey), std::nullopt}};
  EMBLA_RETURN_IF_ERROR(store.Commit(compares, writes).status());
  pending_.reset();
  return absl::OkStatus();
}

}  // namespace embla
