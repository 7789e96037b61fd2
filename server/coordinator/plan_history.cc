#include "server/coordinator/plan_history.h"

#include <algorithm>
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

// `items` without the one called `id`, or with `before` in its place.
template <typename Item, typename Id, typename IdOf>
void PutBack(const std::optional<Item>& before, Id id, IdOf id_of, std::vector<Item>* items) {
  if (id == Id{}) return;
  std::erase_if(*items, [&](const Item& item) { return id_of(item) == id; });
  if (before) items->push_back(*before);
}

// `tables` as they were before `change`.
absl::Status PutTableBack(const PlanChange& change, std::vector<TablePlan>* tables) {
  if (!change.table_delta) {
    PutBack(
        change.table_before, change.table, [](const TablePlan& table) { return table.spec.id; },
        tables);
    return absl::OkStatus();
  }
  const auto table = std::find_if(tables->begin(), tables->end(),
                                  [&](const TablePlan& t) { return t.spec.id == change.table; });
  absl::StatusOr<TablePlan> before = absl::InvalidArgumentError("the table is not in the plan");
  if (table != tables->end()) before = Undo(*change.table_delta, *table);
  if (!before.ok()) {
    return absl::DataLossError(absl::StrCat("the history of plan ", ToInt(change.version),
                                            " is not what happened: ", before.status().message()));
  }
  *table = *std::move(before);
  return absl::OkStatus();
}

}  // namespace

void PlanChange::SetTableBefore(const TablePlan& before, const TablePlan* after) {
  if (after != nullptr) table_delta = DeltaOf(before, *after);
  if (!table_delta) table_before = before;
}

std::string PlanChangeToJson(const PlanChange& change) {
  Json json = {{"version", ToInt(change.version)},
               {"unix_ms", absl::ToUnixMillis(change.at)},
               {"cause", change.cause},
               {"node", ToInt(change.node)},
               {"table", ToInt(change.table)}};
  if (change.node_before) json["node_before"] = Json::parse(NodeSpecToJson(*change.node_before));
  if (change.table_before) {
    json["table_before"] = Json::parse(TablePlanToJson(*change.table_before));
  }
  if (change.table_delta) json["table_delta"] = ToJson(*change.table_delta);
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
  change.table = TableId{static_cast<std::uint32_t>(fields.Unsigned("table", 0, UINT32_MAX))};
  EMBLA_RETURN_IF_ERROR(
      ReadBefore(fields, document, "node_before", &NodeSpecFromJson, &change.node_before));
  EMBLA_RETURN_IF_ERROR(
      ReadBefore(fields, document, "table_before", &TablePlanFromJson, &change.table_before));
  if (fields.Has("table_delta")) {
    EMBLA_ASSIGN_OR_RETURN(change.table_delta, TableDeltaFromJson(fields.Object("table_delta")));
  }
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
  std::vector<TablePlan> tables(current.tables().begin(), current.tables().end());
  for (const PlanChange& change : changes) {
    if (ToInt(change.version) <= ToInt(version)) break;
    PutBack(
        change.node_before, change.node, [](const NodeSpec& node) { return node.id; }, &nodes);
    EMBLA_RETURN_IF_ERROR(PutTableBack(change, &tables));
  }
  return Plan(version, current.cluster_id(), std::move(nodes), std::move(tables));
}

}  // namespace embla
