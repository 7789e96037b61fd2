#include "tools/embla/table_cmd.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/plan/names.h"
#include "core/plan/plan_json.h"
#include "tools/embla/plan_cmd.h"
#include "tools/embla/plan_view.h"
#include "tools/embla/text_table.h"

namespace embla::cli {
namespace {

std::size_t DeviceCount(const TablePlan& table) {
  std::set<DeviceId> devices;
  for (const auto& replica : table.replicas) {
    for (const Slice& slice : replica) devices.insert(slice.device);
  }
  return devices.size();
}

std::string FieldText(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? absl::StrCat(value.get<double>()) : value.dump();
}

// Nested objects as "optimizer.learning_rate".
void PutFields(const Json& object, const std::string& prefix, TextTable& text) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      PutFields(value, absl::StrCat(prefix, key, "."), text);
    } else {
      text.Add({absl::StrCat(prefix, key), FieldText(value)});
    }
  }
}

}  // namespace

absl::Status TableListVerb(client::Admin& admin, bool aside, const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const Plan plan, FetchPlan(admin));
  std::vector<TablePlan> tables(plan.tables().begin(), plan.tables().end());
  std::erase_if(tables, [aside](const TablePlan& table) { return table.aside != aside; });
  if (output.json) {
    Json list = Json::array();
    for (const TablePlan& table : tables) {
      Json view = TableView(plan, table);
      if (aside) view["id"] = ToInt(table.spec.id);
      list.push_back(std::move(view));
    }
    output.PutJson(list);
    return absl::OkStatus();
  }
  const bool has_members = std::ranges::any_of(
      tables, [](const TablePlan& table) { return table.spec.sync.has_value(); });
  std::vector<std::string> titles = {aside ? "table (id)" : "table",
                                     ">rows",
                                     ">dim",
                                     "dtype",
                                     "optimizer",
                                     "sharding",
                                     ">devices",
                                     ">bytes"};
  if (has_members) titles.emplace_back("members");
  TextTable text(titles);
  for (const TablePlan& table : tables) {
    const std::string id = absl::StrCat(" (", ToInt(table.spec.id), ")");
    std::vector<std::string> cells = {table.spec.name + (aside ? id : ""),
                                      FormatCount(table.spec.rows),
                                      absl::StrCat(table.spec.dim),
                                      std::string(NameOf(table.spec.dtype)),
                                      std::string(NameOf(table.spec.optimizer.kind)),
                                      std::string(NameOf(table.sharding)),
                                      absl::StrCat(DeviceCount(table)),
                                      FormatBytes(TableBytes(table))};
    if (has_members) {
      cells.push_back(table.spec.sync.has_value() ? MembersText(table.steps) : "");
    }
    text.Add(cells);
  }
  output.out << text.Render();
  if (!aside && tables.size() < plan.tables().size()) {
    output.out << plan.tables().size() - tables.size()
               << " more are kept aside: embla table ls --aside\n";
  }
  return absl::OkStatus();
}

absl::Status TableDropAsideVerb(client::Admin& admin, std::uint32_t id, const Output& output) {
  v1::DropTableRequest request;
  request.set_aside_id(id);
  EMBLA_ASSIGN_OR_RETURN(const v1::DropTableReply reply, admin.Call<v1::DropTableReply>(request));
  const std::uint64_t version = reply.plan_version();
  if (output.json) {
    output.PutJson({{"dropped_id", id}, {"plan_version", version}});
  } else {
    output.out << "dropped the table with id " << id << " that was kept aside, plan version "
               << version << "\n";
  }
  return absl::OkStatus();
}

absl::Status TableAdoptVerb(client::Admin& admin, const std::string& name, std::uint32_t id,
                            const Output& output) {
  v1::AdoptTableRequest request;
  request.set_name(name);
  request.set_table_id(id);
  EMBLA_ASSIGN_OR_RETURN(const v1::TableReply reply, admin.Call<v1::TableReply>(request));
  EMBLA_ASSIGN_OR_RETURN(const TablePlan table, TablePlanFromJson(reply.table_plan_json()));
  if (output.json) {
    output.PutJson({{"adopted", table.spec.name},
                    {"id", ToInt(table.spec.id)},
                    {"plan_version", reply.plan_version()}});
  } else {
    output.out << "adopted " << table.spec.name << " (id " << ToInt(table.spec.id)
               << "), plan version " << reply.plan_version() << "\n";
  }
  return absl::OkStatus();
}

absl::Status TableDropLeftoversVerb(client::Admin& admin, const std::string& table,
                                    const std::string& node, const Output& output) {
  v1::DropLeftoversRequest request;
  request.set_table(table);
  request.set_node(node);
  EMBLA_RETURN_IF_ERROR(admin.Call<v1::DropLeftoversReply>(request).status());
  if (output.json) {
    output.PutJson({{"table", table}, {"node", node}});
  } else {
    output.out << "node " << node << " was told to give up rows of table " << table
               << " that it keeps aside; embla verify --table " << table << " shows what is left\n";
  }
  return absl::OkStatus();
}

absl::Status TableDescribeVerb(client::Admin& admin, const std::string& name,
                               const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const Plan plan, FetchPlan(admin));
  EMBLA_ASSIGN_OR_RETURN(const TablePlan* table, FindTable(plan, name));
  const Json spec = Json::parse(TableSpecToJson(table->spec));
  if (output.json) {
    Json view = TableView(plan, *table);
    view["spec"] = spec;
    output.PutJson(view);
    return absl::OkStatus();
  }
  TextTable text({"field", "value"});
  PutFields(spec, "", text);
  output.out << text.Render() << "\n" << TableText(plan, *table);
  return absl::OkStatus();
}

absl::Status TableDropVerb(client::Admin& admin, const std::string& name, bool yes,
                           std::istream& in, const Output& output) {
  if (!yes && output.json) {
    return absl::InvalidArgumentError("with -o json nothing is asked: pass --yes");
  }
  if (!yes) {
    EMBLA_ASSIGN_OR_RETURN(const Plan plan, FetchPlan(admin));
    EMBLA_ASSIGN_OR_RETURN(const TablePlan* table, FindTable(plan, name));
    output.out << "Drop " << name << " with its " << FormatCount(table->spec.rows)
               << " rows? They cannot be brought back. Type yes: " << std::flush;
    std::string answer;
    std::getline(in, answer);
    if (answer != "yes") {
      return absl::CancelledError(
          absl::StrCat(name, " was not dropped; answer yes, or pass --yes"));
    }
  }
  EMBLA_ASSIGN_OR_RETURN(const v1::DropTableReply reply,
                         admin.Call<v1::DropTableReply>(client::DropTableRequest(name)));
  const std::uint64_t version = reply.plan_version();
  if (output.json) {
    output.PutJson({{"dropped", name}, {"plan_version", version}});
  } else {
    output.out << "dropped " << name << ", plan version " << version << "\n";
  }
  return absl::OkStatus();
}

absl::Status TableSetVerb(client::Admin& admin, const std::string& name,
                          const std::vector<std::string>& assignments, const Output& output) {
  v1::SetTableRequest request;
  request.set_name(name);
  for (const std::string& assignment : assignments) {
    const std::size_t equals = assignment.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", assignment, "\" is not key=value, for instance learning_rate=0.05"));
    }
    const std::string key = assignment.substr(0, equals);
    if (!request.mutable_values()->insert({key, assignment.substr(equals + 1)}).second) {
      return absl::InvalidArgumentError(absl::StrCat(key, " stands twice"));
    }
  }
  EMBLA_ASSIGN_OR_RETURN(const v1::TableReply reply, admin.Call<v1::TableReply>(request));
  EMBLA_ASSIGN_OR_RETURN(const TablePlan table, TablePlanFromJson(reply.table_plan_json()));
  if (output.json) {
    output.PutJson({{"plan_version", reply.plan_version()},
                    {"spec", Json::parse(TableSpecToJson(table.spec))}});
  } else {
    output.out << "set " << absl::StrJoin(assignments, " ") << " on " << name << ", plan version "
               << reply.plan_version() << "\n";
  }
  return absl::OkStatus();
}

absl::Status TableSyncVerb(client::Client& client, const std::vector<std::string>& names,
                           const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<client::TableSyncReport> reports,
                         client.Sync(names, {}));
  if (output.json) {
    Json list = Json::array();
    for (const client::TableSyncReport& report : reports) {
      list.push_back({{"table", report.table},
                      {"replica_groups", report.replica_groups},
                      {"divergence_max", report.divergence_max},
                      {"divergence_rms", report.divergence_rms}});
    }
    output.PutJson(list);
    return absl::OkStatus();
  }
  TextTable text({"table", ">replica groups", ">divergence max", ">rms"});
  for (const client::TableSyncReport& report : reports) {
    text.Add({report.table, absl::StrCat(report.replica_groups),
              absl::StrFormat("%.6g", report.divergence_max),
              absl::StrFormat("%.6g", report.divergence_rms)});
  }
  output.out << text.Render();
  return absl::OkStatus();
}

}  // namespace embla::cli
