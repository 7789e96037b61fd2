#include "server/rpc/replica_codec.h"

#include <cstring>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/wire/large_fields.h"

namespace embla {
namespace {

wire::ReplicateHead HeadOf(const ReplicaMessage& message, const wire::PeerProof& proof) {
  return {.table = message.table,
          .reign = message.reign,
          .order = message.order,
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

ReplicaMessage::Kind ToKind(wire::ReplicateCall::Kind kind) {
  switch (kind) {
    case wire::ReplicateCall::Kind::kProbe:
      return ReplicaMessage::Kind::kProbe;
    case wire::ReplicateCall::Kind::kUpdate:
      return ReplicaMessage::Kind::kUpdate;
    case wire::ReplicateCall::Kind::kSnapshot:
      return ReplicaMessage::Kind::kSnapshot;
  }
  return ReplicaMessage::Kind::kProbe;
}

}  // namespace

grpc::ByteBuffer EncodeReplica(const ReplicaMessage& message, const wire::PeerProof& proof) {
  const wire::ReplicateHead head = HeadOf(message, proof);
  switch (message.kind) {
    case ReplicaMessage::Kind::kProbe:
      break;
    case ReplicaMessage::Kind::kUpdate:
      return wire::EncodeReplicateUpdate(head, message.update,
                                         wire::SharePayload(message.update, message.memory));
    case ReplicaMessage::Kind::kSnapshot: {
      wire::ReplicateSnapshot snapshot{.row_block = Buffer::Allocate(message.row_block.size()),
                                       .first = message.first,
                                       .last = message.last,
                                       .windows = {}};
      if (!message.row_block.empty()) {
        std::memcpy(snapshot.row_block.data(), message.row_block.data(), message.row_block.size());
      }
      for (const SessionWindow& window : message.windows.sessions()) {
        snapshot.windows.push_back({.session = ToInt(window.session),
                                    .floor = ToInt(window.floor),
                                    .words = window.words});
      }
      return wire::EncodeReplicateSnapshot(head, std::move(snapshot));
    }
  }
  return wire::EncodeReplicateProbe(head);
}

wire::Frame EncodeReplicaFrame(const ReplicaMessage& message, const wire::PeerProof& proof,
                               const wire::ReplicateOrder& order) {
  return wire::EncodeReplicateFrame(order, HeadOf(message, proof), message.update,
                                    wire::SharePayload(message.update, message.memory));
}

absl::StatusOr<ReceivedReplica> FromWire(wire::ReplicateCall call) {
  ReceivedReplica received;
  ReplicaMessage& message = received.message;
  message.kind = ToKind(call.kind);
  message.table = call.head.table;
  message.reign = call.head.reign;
  message.order = call.head.order;
  message.plan_version = call.head.plan_version;
  message.term = call.head.term;
  message.life = call.head.life;
  message.serves = call.head.serves;
  message.update = std::move(call.update.batch);
  received.memory = std::move(call.update.memory);
  message.row_block = std::move(call.snapshot.row_block);
  message.first = call.snapshot.first;
  message.last = call.snapshot.last;
  EMBLA_ASSIGN_OR_RETURN(message.windows, ToWindows(call.snapshot.windows));
  return received;
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
