#include "tools/embla/plan_cmd.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/plan/plan_json.h"
#include "core/planner/cluster/auto_placement.h"
#include "core/planner/placement_json.h"
#include "tools/embla/plan_view.h"

namespace embla::cli {
namespace {

constexpr std::uint32_t kStatedNodesMax = 10'000;
constexpr std::uint32_t kStatedDevicesMax = 64;

std::vector<NodeSpec> MakeNodes(const StatedNodes& stated) {
  std::vector<NodeSpec> nodes;
  for (std::uint32_t n = 0; n < stated.nodes; ++n) {
    NodeSpec node;
    node.id = NodeId{n + 1};
    node.name = absl::StrCat("n", n);
    node.address = absl::StrCat("n", n, ":7000");
    node.devices.assign(stated.devices_per_node,
                        DeviceSpec{DeviceKind::kCpu, stated.device_memory_bytes});
    nodes.push_back(std::move(node));
  }
  return nodes;
}

}  // namespace

absl::Status StatedNodes::Validate() const {
  if (nodes < 1 || nodes > kStatedNodesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--nodes is ", nodes, ", allowed are 1 to ", kStatedNodesMax));
  }
  if (devices_per_node < 1 || devices_per_node > kStatedDevicesMax) {
    return absl::InvalidArgumentError(absl::StrCat("--devices-per-node is ", devices_per_node,
                                                   ", allowed are 1 to ", kStatedDevicesMax));
  }
  if (device_memory_bytes < 1) {
    return absl::InvalidArgumentError("--memory-per-device must be at least 1 byte");
  }
  return absl::OkStatus();
}

absl::StatusOr<Plan> FetchPlan(client::Admin& admin) {
  EMBLA_ASSIGN_OR_RETURN(const v1::Plan plan, admin.Call<v1::Plan>(v1::GetClusterPlanRequest()));
  return PlanFromJson(plan.json());
}

absl::StatusOr<const TablePlan*> FindTable(const Plan& plan, const std::string& name) {
  if (const TablePlan* table = plan.FindTable(name)) return table;
  std::vector<std::string> names;
  for (const TablePlan& table : plan.tables()) names.push_back(table.spec.name);
  return absl::NotFoundError(absl::StrCat("no table \"", name, "\"; there are ",
                                          names.empty() ? "none" : absl::StrJoin(names, ", ")));
}

absl::Status PlanShowVerb(client::Admin& admin, const std::string& table, const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const Plan plan, FetchPlan(admin));
  if (table.empty()) {
    if (output.json) {
      output.PutJson(PlanView(plan));
    } else {
      output.out << PlanText(plan);
    }
    return absl::OkStatus();
  }
  EMBLA_ASSIGN_OR_RETURN(const TablePlan* found, FindTable(plan, table));
  if (output.json) {
    output.PutJson(TableView(plan, *found));
  } else {
    output.out << TableText(plan, *found);
  }
  return absl::OkStatus();
}

absl::Status PlanTableOfflineVerb(std::span<const TableRequest> requests, const StatedNodes& stated,
                                  const Output& output) {
  EMBLA_RETURN_IF_ERROR(stated.Validate());
  const std::vector<NodeSpec> nodes = MakeNodes(stated);
  std::vector<TablePlan> tables;
  for (const TableRequest& request : requests) {
    TableSpec spec = request.spec;
    spec.SetDefaults();
    spec.id = TableId{static_cast<std::uint32_t>(tables.size() + 1)};
    EMBLA_ASSIGN_OR_RETURN(TablePlan table,
                           planner::PlaceOrChoose(spec, request.placement, nodes, tables));
    tables.push_back(std::move(table));
  }
  const Plan plan(PlanVersion{0}, "", nodes, std::move(tables));
  if (output.json) {
    output.PutJson(PlanView(plan));
  } else {
    for (const TablePlan& table : plan.tables()) output.out << TableText(plan, table) << "\n";
    output.out << DevicesText(plan);
  }
  return absl::OkStatus();
}

absl::Status PlanTableVerb(client::Admin& admin, std::span<const TableRequest> requests,
                           const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const Plan plan, FetchPlan(admin));
  Json views = Json::array();
  for (const TableRequest& request : requests) {
    v1::PlanTableRequest question;
    question.set_table_json(TableSpecToJson(request.spec));
    question.set_placement_json(PlacementRequestToJson(request.placement));
    EMBLA_ASSIGN_OR_RETURN(const v1::TableReply reply, admin.Call<v1::TableReply>(question));
    EMBLA_ASSIGN_OR_RETURN(const TablePlan table, TablePlanFromJson(reply.table_plan_json()));
    if (output.json) {
      views.push_back(TableView(plan, table));
    } else {
      output.out << TableText(plan, table);
    }
  }
  if (output.json) {
    output.PutJson({{"plan_version", ToInt(plan.version())},
                    {"cluster_id", plan.cluster_id()},
                    {"tables", views}});
  }
  return absl::OkStatus();
}

}  // namespace embla::cli
