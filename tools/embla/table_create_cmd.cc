#include "tools/embla/table_create_cmd.h"

#include <cstddef>
#include <future>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/plan/plan_json.h"
#include "core/planner/placement_json.h"
#include "tools/embla/plan_cmd.h"
#include "tools/embla/plan_view.h"
#include "tools/embla/text_table.h"

namespace embla::cli {
namespace {

// More tables than these are only counted: nobody reads how each of 400 was cut.
constexpr std::size_t kCutsShown = 20;

std::string CountText(std::size_t count, const char* what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

v1::CreateTablesRequest MessageOf(std::span<const TableRequest> requests, bool if_not_exists) {
  v1::CreateTablesRequest message;
  message.set_if_not_exists(if_not_exists);
  for (const TableRequest& request : requests) {
    *message.add_tables() = client::CreateTableRequest(TableSpecToJson(request.spec),
                                                       PlacementRequestToJson(request.placement));
  }
  return message;
}

// Live nodes that have not allocated all that the current plan has.
absl::StatusOr<std::size_t> CountNodesBehind(client::Admin& admin) {
  EMBLA_ASSIGN_OR_RETURN(const v1::ClusterStatus status,
                         admin.Call<v1::ClusterStatus>(v1::GetClusterStatusRequest()));
  EMBLA_ASSIGN_OR_RETURN(const v1::ListNodesReply reply,
                         admin.Call<v1::ListNodesReply>(v1::ListNodesRequest()));
  std::size_t behind = 0;
  for (const v1::NodeStatus& node : reply.nodes()) {
    if (node.live() && node.plan_version() < status.plan_version()) ++behind;
  }
  return behind;
}

// Rows of ZCH tables come in whole groups of every bucket.
void PutCapacityHint(const TableSpec& asked, const TableSpec& made, const Output& output) {
  if (!made.zch.has_value() || made.rows == asked.rows) return;
  output.out << Coloured("note:", Colour::kYellow, output.terminal) << " asked for room for "
             << FormatCount(asked.rows) << " ids, made is room for " << FormatCount(made.rows)
             << ": a multiple of 64 x " << made.zch->buckets
             << " buckets; fewer buckets (--buckets, or zch.buckets in a file) come closer\n";
}

Json CreatedView(const Plan& plan, const TableRequest& request, const TablePlan& table,
                 bool existed, const v1::CreateTablesReply& reply) {
  Json view = TableView(plan, table);
  view["existed"] = existed;
  view["left_out"] = Json::array();
  if (!existed) {
    for (const std::string& node : reply.left_out()) view["left_out"].push_back(node);
  }
  if (table.spec.zch.has_value()) view["capacity_asked"] = request.spec.rows;
  return view;
}

void PutSummary(std::size_t tables, const v1::CreateTablesReply& reply, const Output& output) {
  if (tables > 1) {
    output.out << "created " << CountText(tables - reply.existed_size(), "table") << " in plan "
               << reply.plan_version();
    if (reply.existed_size() > 0) output.out << ", " << reply.existed_size() << " existed";
    output.out << "\n";
  }
  if (reply.left_out().empty()) return;
  output.out << Coloured("warning:", Colour::kYellow, output.terminal) << " "
             << absl::StrJoin(reply.left_out(), ", ") << "; it has nothing of "
             << (tables == 1 ? "this table" : "these tables")
             << ": start it, then embla rebalance or reshard\n";
}

}  // namespace

absl::StatusOr<v1::CreateTablesReply> CreateTables(client::Admin& admin,
                                                   std::span<const TableRequest> requests,
                                                   const CreateFlags& flags, const Output& output) {
  const v1::CreateTablesRequest request = MessageOf(requests, flags.if_not_exists);
  if (output.json) return admin.Call<v1::CreateTablesReply>(request);
  std::future<absl::StatusOr<v1::CreateTablesReply>> reply =
      std::async(std::launch::async, [&] { return admin.Call<v1::CreateTablesReply>(request); });
  std::string shown;
  while (reply.wait_for(absl::ToChronoMilliseconds(flags.look_every)) !=
         std::future_status::ready) {
    const absl::StatusOr<std::size_t> behind = CountNodesBehind(admin);
    if (!behind.ok()) continue;  // The call itself says what is wrong.
    const std::string tables = CountText(requests.size(), "table");
    const std::string line =
        *behind == 0
            ? absl::StrCat("waiting for the coordinator to place ", tables)
            : absl::StrCat("waiting for ", CountText(*behind, "node"), " to allocate ", tables);
    if (line != shown) output.ShowProgress(line);
    shown = line;
  }
  if (!shown.empty() && output.terminal.redraws) output.out << "\n";
  return reply.get();
}

absl::Status TableCreateVerb(client::Admin& admin, std::span<const TableRequest> requests,
                             const CreateFlags& flags, const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const v1::CreateTablesReply reply,
                         CreateTables(admin, requests, flags, output));
  EMBLA_ASSIGN_OR_RETURN(const Plan plan, FetchPlan(admin));
  const absl::flat_hash_set<std::string> there_before(reply.existed().begin(),
                                                      reply.existed().end());
  Json views = Json::array();
  for (const TableRequest& request : requests) {
    EMBLA_ASSIGN_OR_RETURN(const TablePlan* const table, FindTable(plan, request.spec.name));
    const bool existed = there_before.contains(request.spec.name);
    if (output.json) {
      views.push_back(CreatedView(plan, request, *table, existed, reply));
      continue;
    }
    if (requests.size() <= kCutsShown) {
      output.out << (existed ? "exists " : "created ") << TableText(plan, *table);
    }
    PutCapacityHint(request.spec, table->spec, output);
  }
  if (output.json) {
    output.PutJson(views);
  } else {
    PutSummary(requests.size(), reply, output);
  }
  return absl::OkStatus();
}

}  // namespace embla::cli
