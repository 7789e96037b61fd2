#include "server/rpc/peer_channel.h"

#include <cstring>
#include <utility>

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include "absl/time/clock.h"
#include "core/base/text.h"
#include "core/wire/callback_queue.h"
#include "core/wire/replicate_codec.h"
#include "core/wire/status_codec.h"
#include "server/rpc/channel_arguments.h"
#include "server/rpc/move_codec.h"

namespace embla {
namespace {

constexpr char kReplicate[] = "/embla.v1.DataService/Replicate";
constexpr char kMove[] = "/embla.v1.DataService/Move";

// A message of a move that takes longer counts as lost, and is said again.
constexpr absl::Duration kMoveTimeout = absl::Seconds(10);

// gRPC may hold a message's slices a little longer than the call lasts, so payloads are copied.
grpc::ByteBuffer Encode(const ReplicaMessage& message) {
  const wire::ReplicateHead head{.table = message.table,
                                 .incarnation = message.incarnation,
                                 .order = message.order,
                                 .plan_version = message.plan_version,
                                 .term = message.term,
                                 .life = message.life,
                                 .serves = message.serves};
  switch (message.kind) {
    case ReplicaMessage::Kind::kProbe:
    case ReplicaMessage::Kind::kGone:  // Never sent.
      break;
    case ReplicaMessage::Kind::kUpdate:
      return wire::EncodeReplicateUpdate(head, message.update, wire::GatherPayload(message.update));
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

absl::StatusOr<ReplicaAck> Decode(const grpc::Status& status, grpc::ByteBuffer& reply) {
  if (!status.ok()) return wire::FromGrpc(status);
  const absl::StatusOr<wire::ReplicateAck> ack = wire::DecodeReplicateReply(reply);
  if (!ack.ok()) return absl::InternalError(Message(ack.status()));
  return ReplicaAck{.order = ack->order,
                    .need_snapshot = ack->need_snapshot,
                    .life = ack->life,
                    .gone = ack->gone};
}

// What gRPC needs until the call is over.
struct Call {
  grpc::ClientContext context;
  grpc::ByteBuffer request;
  grpc::ByteBuffer reply;
};

// `done` (const grpc::Status&, grpc::ByteBuffer& reply) runs on gRPC's thread, never inside this.
template <typename Stub, typename Done>
void Start(std::shared_ptr<Stub> stub, const char* method, const grpc::ByteBuffer& request,
           absl::Duration timeout, Done done) {
  auto* const call = new Call;
  call->request = request;
  call->context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  stub->UnaryCall(&call->context, method, grpc::StubOptions(), &call->request, &call->reply,
                  [call, stub, done = std::move(done)](const grpc::Status& status) {
                    const std::unique_ptr<Call> owned(call);
                    done(status, owned->reply);
                  });
}

}  // namespace

void PeerChannel::Send(const NodeSpec& node, const ReplicaMessage& message, absl::Duration timeout,
                       ReplicaDone done) {
  Start(StubFor(node.address), kReplicate, Encode(message), timeout,
        [done = std::move(done)](const grpc::Status& status, grpc::ByteBuffer& reply) {
          done(Decode(status, reply));
        });
}

void PeerChannel::Send(const std::string& address, PeerMessage message, MoveTransport::Done done) {
  Start(StubFor(address), kMove, EncodeMove(std::move(message)), kMoveTimeout,
        [done = std::move(done)](const grpc::Status& status, grpc::ByteBuffer&) {
          done(wire::FromGrpc(status));
        });
}

std::shared_ptr<PeerChannel::Stub> PeerChannel::StubFor(const std::string& address) {
  MutexLock lock(mu_);
  std::shared_ptr<Stub>& stub = stubs_[address];
  if (stub == nullptr) {
    wire::KeepCallbackQueue();
    stub = std::make_shared<Stub>(grpc::CreateCustomChannel(
        address, grpc::InsecureChannelCredentials(), PeerChannelArguments(absl::Seconds(1))));
  }
  return stub;
}

}  // namespace embla
