// Tables and nodes over AdminService, where the coordinator's thread does it all.
#include <map>
#include <optional>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/log_level.h"
#include "core/base/status_macros.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/coordinator_codec.h"
#include "server/rpc/post_unary.h"

namespace embla {
namespace {

absl::Status AnswerGetClusterStatus(Coordinator& coordinator, const v1::GetClusterStatusRequest&,
                                    v1::ClusterStatus& reply, absl::Time) {
  reply = ToMessage(coordinator.Status());
  return absl::OkStatus();
}

absl::Status AnswerListNodes(Coordinator& coordinator, const v1::ListNodesRequest&,
                             v1::ListNodesReply& reply, absl::Time) {
  for (const NodeView& node : coordinator.Nodes()) *reply.add_nodes() = ToMessage(node);
  return absl::OkStatus();
}

absl::Status AnswerDropTable(Coordinator& coordinator, const v1::DropTableRequest& request,
                             v1::DropTableReply& reply, absl::Time now) {
  const TableId aside{request.aside_id()};
  EMBLA_ASSIGN_OR_RETURN(const PlanVersion version,
                         aside == TableId{} ? coordinator.DropTable(request.name(), now)
                                            : coordinator.DropAside(request.name(), aside, now));
  reply.set_plan_version(ToInt(version));
  return absl::OkStatus();
}

absl::Status AnswerAdoptTable(Coordinator& coordinator, const v1::AdoptTableRequest& request,
                              v1::TableReply& reply, absl::Time now) {
  EMBLA_ASSIGN_OR_RETURN(const TableChange change,
                         coordinator.AdoptTable(request.name(), TableId{request.table_id()}, now));
  reply = ToMessage(change.table, change.plan_version);
  return absl::OkStatus();
}

absl::Status AnswerDropLeftovers(Coordinator& coordinator, const v1::DropLeftoversRequest& request,
                                 v1::DropLeftoversReply&, absl::Time) {
  return coordinator.DropLeftovers(request.table(), request.node());
}

absl::Status AnswerSetLogLevel(Coordinator& coordinator, const v1::SetLogLevelRequest& request,
                               v1::SetLogLevelReply& reply, absl::Time) {
  constexpr const char kLeader[] = "coordinator";
  const std::optional<LogLevel> level = FromMessage(request.level());
  if (!level.has_value()) return absl::InvalidArgumentError("level is not set, or unknown");
  const bool is_for_all = request.server().empty();
  if (is_for_all || request.server() == kLeader) {
    ChangeLogLevel("coordinator", *level);
    reply.add_servers(kLeader);
    if (!is_for_all) return absl::OkStatus();
  }
  for (const NodeView& node : coordinator.Nodes()) {
    if (!is_for_all && node.spec.name != request.server()) continue;
    if (node.live()) coordinator.SetLogLevel(node.spec.id, *level);
    (node.live() ? reply.add_servers() : reply.add_left_out())->assign(node.spec.name);
  }
  if (is_for_all || reply.servers_size() > 0) return absl::OkStatus();
  return reply.left_out_size() > 0
             ? absl::UnavailableError(absl::StrCat("node ", request.server(), " is down"))
             : absl::NotFoundError(
                   absl::StrCat("no node ", absl::CHexEscape(request.server().substr(0, 128))));
}

absl::Status AnswerSetTable(Coordinator& coordinator, const v1::SetTableRequest& request,
                            v1::TableReply& reply, absl::Time now) {
  const std::map<std::string, std::string> values(request.values().begin(), request.values().end());
  EMBLA_ASSIGN_OR_RETURN(const TableChange change,
                         coordinator.SetTable(request.name(), values, now));
  reply = ToMessage(change.table, change.plan_version);
  return absl::OkStatus();
}

}  // namespace

void AdminService::MarkTableMethods() {
  MarkMethodCallback(0, OnCoordinator(host_, AnswerGetClusterStatus));
  MarkMethodCallback(1, OnCoordinator(host_, AnswerListNodes));
  MarkMethodCallback(4, OnCoordinator(host_, AnswerDropTable));
  MarkMethodCallback(5, OnCoordinator(host_, AnswerSetTable));
  MarkMethodCallback(17, OnCoordinator(host_, AnswerAdoptTable));
  MarkMethodCallback(18, OnCoordinator(host_, AnswerDropLeftovers));
  MarkMethodCallback(20, OnCoordinator(host_, AnswerSetLogLevel));
}

}  // namespace embla
