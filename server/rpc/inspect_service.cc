#include "server/rpc/inspect_service.h"

#include "core/wire/status_codec.h"

namespace embla {
namespace {

void Fill(const IdExplanation& explanation, v1::ExplainIdReply& reply) {
  reply.set_device(explanation.device);
  reply.set_bucket(explanation.bucket);
  reply.set_row(explanation.row.value_or(-1));
  reply.set_shared_row(explanation.shared_row.value_or(-1));
  reply.set_last_step(explanation.last_step);
  reply.set_touches(explanation.touches);
  reply.set_expires_at_step(explanation.expires_at_step);
  reply.set_seen(explanation.seen);
  reply.set_group_residents(explanation.group_residents);
  if (!explanation.eviction.has_value()) return;
  reply.set_evicted(true);
  reply.set_evicted_at_step(explanation.eviction->step);
  reply.set_evicted_last_step(explanation.eviction->last_step);
  reply.set_evicted_reason(explanation.eviction->reason);
}

}  // namespace

grpc::ServerUnaryReactor* InspectService::ExplainId(grpc::CallbackServerContext* call,
                                                    const v1::ExplainIdRequest* request,
                                                    v1::ExplainIdReply* reply) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  node_.ExplainId(TableId{request->table_id()}, RowId{request->id()},
                  [reactor, reply](const absl::StatusOr<IdExplanation>& explanation) {
                    if (explanation.ok()) Fill(*explanation, *reply);
                    reactor->Finish(wire::ToGrpc(explanation.status()));
                  });
  return reactor;
}

}  // namespace embla
