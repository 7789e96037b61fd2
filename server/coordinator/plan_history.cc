#include "server/coordinator/plan_history.h"

#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/json_fields.h"
#include "core/plan/plan_json.h"

namespace embla {
namespace {

constexpr std::string_view kHistoryPrefix = "plan/history/";

std::string KeyOf(std::uint64_t version) {
  return absl::StrCat(ToAbsl(kHistoryPrefix), absl::StrFormat("%020d", version));
}

// A value that was there before, as a document inside the record; null: it was not.
template <typename Value>
absl::Status ReadBefore(JsonFields& fields, const Json& document, const char* name,
                        absl::StatusOr<Value> (*parse)(std::string_view),
                        std::optional<Value>* value) {
  if (!fields.Has(name) || document[name].is_null()) return absl::OkStatus();
  absl::StatusOr<Value> parsed = parse(fields.Object(name).dump());
  if (!parsed.ok()) return Annotate(parsed.status(), name);
  *value = *std::move(parsed);
  return absl::OkStatus();
}

// `nodes` as they were before `change`.
void PutNodeBack(const PlanChange& change, std::vector<NodeSpec>* nodes) {
  if (change.node == NodeId{}) return;
  std::erase_if(*nodes, [&](const NodeSpec& node) { return node.id == change.node; });
  if (change.node_before) nodes->push_back(*change.node_before);
}

using TablesById = std::map<TableId, TablePtr>;

// `tables` as they were before `change`.
absl::Status PutTableBack(const TableBefore& change, TablesById* tables) {
  if (!change.delta) {
    tables->erase(change.table);
    if (change.before) {
      tables->emplace(change.table, std::make_shared<const TablePlan>(*change.before));
    }
    return absl::OkStatus();
  }
  const auto table = tables->find(change.table);
  if (table == tables->end()) return absl::InvalidArgumentError("the table is not in the plan");
  EMBLA_ASSIGN_OR_RETURN(TablePlan before, Undo(*change.delta, *table->second));
  table->second = std::make_shared<const TablePlan>(std::move(before));
  return absl::OkStatus();
}

Json ToJson(const TableBefore& change) {
  Json json = {{"table", ToInt(change.table)}};
  if (change.before) json["table_before"] = Json::parse(TablePlanToJson(*change.before));
  if (change.delta) json["table_delta"] = ToJson(*change.delta);
  return json;
}

// Takes the fields of `document` that say what became of a table.
absl::Status ReadTable(JsonFields& fields, const Json& document, TableBefore* change) {
  change->table = TableId{static_cast<std::uint32_t>(fields.Unsigned("table", 0, UINT32_MAX))};
  EMBLA_RETURN_IF_ERROR(
      ReadBefore(fields, document, "table_before", &TablePlanFromJson, &change->before));
  if (!fields.Has("table_delta")) return absl::OkStatus();
  EMBLA_ASSIGN_OR_RETURN(change->delta, TableDeltaFromJson(fields.Object("table_delta")));
  return absl::OkStatus();
}

absl::Status ReadTables(JsonFields& fields, const Json& document,
                        std::vector<TableBefore>* tables) {
  if (!fields.Has("tables")) {
    TableBefore one;
    EMBLA_RETURN_IF_ERROR(ReadTable(fields, document, &one));
    if (one.table != TableId{}) tables->push_back(std::move(one));
    return absl::OkStatus();
  }
  for (const Json& item : fields.Array("tables")) {
    JsonFields own(item, "change of a table");
    EMBLA_RETURN_IF_ERROR(ReadTable(own, item, &tables->emplace_back()));
    EMBLA_RETURN_IF_ERROR(own.Finish());
  }
  return absl::OkStatus();
}

}  // namespace

TableBefore TableBefore::Of(TableId id, const TablePlan* before, const TablePlan* after) {
  TableBefore change{.table = id};
  if (before == nullptr) return change;
  if (after != nullptr) change.delta = DeltaOf(*before, *after);
  if (!change.delta) change.before = *before;
  return change;
}

std::string PlanChangeToJson(const PlanChange& change) {
  Json json = {{"version", ToInt(change.version)},
               {"unix_ms", absl::ToUnixMillis(change.at)},
               {"cause", change.cause},
               {"node", ToInt(change.node)},
               {"tables", Json::array()}};
  if (change.node_before) json["node_before"] = Json::parse(NodeSpecToJson(*change.node_before));
  for (const TableBefore& table : change.tables) json["tables"].push_back(ToJson(table));
  return DumpJson(json);
}

absl::StatusOr<PlanChange> PlanChangeFromJson(std::string_view json) {
  EMBLA_ASSIGN_OR_RETURN(const Json document, ParseJson(json));
  JsonFields fields(document, "plan change");
  PlanChange change;
  change.version = PlanVersion{fields.Unsigned("version", 1, UINT64_MAX)};
  change.at = absl::FromUnixMillis(fields.Signed("unix_ms", 0, INT64_MAX));
  change.cause = fields.Text("cause");
  change.node = NodeId{static_cast<std::uint32_t>(fields.Unsigned("node", 0, UINT32_MAX))};
  EMBLA_RETURN_IF_ERROR(
      ReadBefore(fields, document, "node_before", &NodeSpecFromJson, &change.node_before));
  EMBLA_RETURN_IF_ERROR(ReadTables(fields, document, &change.tables));
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  return change;
}

void AppendHistoryWrites(const PlanChange& change, std::vector<StateWrite>* writes) {
  const std::uint64_t version = ToInt(change.version);
  writes->push_back({KeyOf(version), PlanChangeToJson(change)});
  if (version > kHistoryMax) writes->push_back({KeyOf(version - kHistoryMax), std::nullopt});
}

absl::Status TrimHistory(StateStore& store) {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<StateEntry> entries, store.List(kHistoryPrefix));
  for (std::size_t i = 0; i + kHistoryMax < entries.size();) {
    std::vector<StateWrite> writes;
    for (; i + kHistoryMax < entries.size() && writes.size() < kStateCommitOpsMax; ++i) {
      writes.push_back({entries[i].key, std::nullopt});
    }
    EMBLA_RETURN_IF_ERROR(store.Commit({}, writes).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PlanChange>> ReadHistory(const StateStore& store, std::size_t limit) {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<StateEntry> entries, store.List(kHistoryPrefix));
  std::vector<PlanChange> changes;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (limit != 0 && changes.size() == limit) break;
    absl::StatusOr<PlanChange> change = PlanChangeFromJson(entry->value);
    if (!change.ok()) {
      return absl::DataLossError(
          absl::StrCat("state key ", entry->key, " is not readable: ", change.status().message()));
    }
    changes.push_back(*std::move(change));
  }
  return changes;
}

absl::StatusOr<Plan> PlanAt(const StateStore& store, const Plan& current, PlanVersion version) {
  if (version == current.version()) return current;
  EMBLA_ASSIGN_OR_RETURN(std::vector<PlanChange> changes, ReadHistory(store, 0));
  // The store may be ahead: it is read while it is written.
  std::erase_if(changes, [&](const PlanChange& change) {
    return ToInt(change.version) > ToInt(current.version());
  });
  const std::uint64_t oldest =
      changes.empty() ? ToInt(current.version()) : ToInt(changes.back().version) - 1;
  if (ToInt(version) < oldest || ToInt(version) > ToInt(current.version())) {
    return absl::NotFoundError(absl::StrCat("there is no plan ", ToInt(version), "; kept are ",
                                            oldest, " to ", ToInt(current.version())));
  }
  std::vector<NodeSpec> nodes = current.nodes();
  TablesById by_id;
  for (const TablePtr& table : current.tables().pointers()) by_id.emplace(table->spec.id, table);
  for (const PlanChange& change : changes) {
    if (ToInt(change.version) <= ToInt(version)) break;
    PutNodeBack(change, &nodes);
    for (const TableBefore& table : change.tables) {
      const absl::Status put = PutTableBack(table, &by_id);
      if (put.ok()) continue;
      return absl::DataLossError(absl::StrCat("the history of plan ", ToInt(change.version),
                                              " is not what happened: ", put.message()));
    }
  }
  std::vector<TablePtr> tables;
  for (auto& [id, table] : by_id) tables.push_back(std::move(table));
  return Plan(version, current.cluster_id(), std::move(nodes), TableList(std::move(tables)));
}

}  // namespace embla
