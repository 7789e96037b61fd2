// Tables and nodes over AdminService, where the coordinator's thread does it all.
#include <map>
#include <string>

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
}

}  // namespace embla
