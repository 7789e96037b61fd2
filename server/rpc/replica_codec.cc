#include "server/rpc/replica_codec.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/status_macros.h"
#include "core/wire/large_fields.h"

namespace embla {
namespace {

wire::ReplicateHead HeadOf(const ReplicaMessage& message, const wire::PeerProof& proof) {
  return {.table = message.table(),
          .reign = message.reign(),
          .order = message.order(),
          .plan_version = message.plan_version,
          .term = message.term,
          .life = message.life,
          .serves = message.serves,
          .peer = proof};
}

absl::StatusOr<UnitWindows> ToWindows(const std::vector<wire::ReplicateWindow>& windows) {
  std::vector<SessionWindow> sessions;
  for (const wire::ReplicateWindow& window : windows) {
    sessions.push_back({.session = SessionId{window.session},
                        .floor = UpdateSeq{window.floor},
                        .words = window.words});
  }
  return UnitWindows::FromSessions(std::move(sessions));
}

wire::ReplicateSnapshot ToSnapshot(const CopiedRows& rows) {
  wire::ReplicateSnapshot snapshot{.row_block = Buffer::Allocate(rows.row_block.size()),
                                   .first = rows.first,
                                   .last = rows.last,
                                   .windows = {}};
  std::ranges::copy(rows.row_block.bytes(), snapshot.row_block.data());
  for (const SessionWindow& window : rows.windows.sessions()) {
    snapshot.windows.push_back(
        {.session = ToInt(window.session), .floor = ToInt(window.floor), .words = window.words});
  }
  return snapshot;
}

}  // namespace

grpc::ByteBuffer EncodeReplica(const ReplicaMessage& message, const wire::PeerProof& proof) {
  const wire::ReplicateHead head = HeadOf(message, proof);
  if (const auto* const update = std::get_if<CopiedUpdate>(&message.content)) {
    return wire::EncodeReplicateUpdate(head, update->batch, wire::GatherPayload(update->batch));
  }
  if (const auto* const rows = std::get_if<CopiedRows>(&message.content)) {
    return wire::EncodeReplicateSnapshot(head, ToSnapshot(*rows));
  }
  return wire::EncodeReplicateProbe(head);
}

wire::Frame EncodeReplicaFrame(const ReplicaMessage& message, const wire::PeerProof& proof,
                               const wire::ReplicateOrder& order) {
  const UpdateBatch& batch = std::get<CopiedUpdate>(message.content).batch;
  return wire::EncodeReplicateFrame(order, HeadOf(message, proof), batch,
                                    wire::GatherPayload(batch));
}

absl::StatusOr<ReplicaMessage> FromWire(wire::ReplicateCall call) {
  const wire::ReplicateHead& head = call.head;
  ReplicaMessage message{.content = {},
                         .plan_version = head.plan_version,
                         .term = head.term,
                         .life = head.life,
                         .serves = head.serves};
  switch (call.kind) {
    case wire::ReplicateCall::Kind::kProbe:
      message.content = CopyProbe{head.table, head.reign, head.order};
      break;
    case wire::ReplicateCall::Kind::kUpdate:
      message.content = CopiedUpdate{head.table, head.reign, head.order, std::move(call.update)};
      break;
    case wire::ReplicateCall::Kind::kSnapshot: {
      CopiedRows rows{.table = head.table,
                      .reign = head.reign,
                      .order = head.order,
                      .row_block = std::move(call.snapshot.row_block),
                      .first = call.snapshot.first,
                      .last = call.snapshot.last};
      EMBLA_ASSIGN_OR_RETURN(rows.windows, ToWindows(call.snapshot.windows));
      message.content = std::move(rows);
      break;
    }
  }
  return message;
}

wire::ReplicateAck ToWire(const ReplicaAck& ack) {
  return {.order = ack.order,
          .need_snapshot = ack.need_snapshot,
          .life = ack.life,
          .gone = ack.gone,
          .early_max = ack.early_max};
}

ReplicaAck FromWire(const wire::ReplicateAck& ack) {
  return {.order = ack.order,
          .need_snapshot = ack.need_snapshot,
          .life = ack.life,
          .gone = ack.gone,
          .early_max = ack.early_max};
}

}  // namespace embla
