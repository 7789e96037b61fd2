#include "server/rpc/peer_channel.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <grpcpp/alarm.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/functional/any_invocable.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/buffer.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/wire/callback_queue.h"
#include "core/wire/large_fields.h"
#include "core/wire/replicate_codec.h"
#include "core/wire/status_codec.h"
#include "embla/v1/data.pb.h"
#include "server/rpc/channel_arguments.h"
#include "server/rpc/key_proofs.h"
#include "server/rpc/move_codec.h"

namespace embla {
namespace {

constexpr char kReplicate[] = "/embla.v1.DataService/Replicate";
constexpr char kMove[] = "/embla.v1.DataService/Move";
constexpr char kGreet[] = "/embla.v1.DataService/Greet";

// A message of a move that takes longer counts as lost, and is said again.
constexpr absl::Duration kMoveTimeout = absl::Seconds(10);
constexpr absl::Duration kGreetTimeout = absl::Seconds(5);
// A channel that nobody uses for so long is closed when the next one is made.
constexpr absl::Duration kUnusedMax = absl::Minutes(10);

// gRPC may hold a message's slices a little longer than the call lasts, so payloads are shared with
// whoever else keeps them, or copied.
grpc::ByteBuffer Encode(std::span<const ReplicaMessage> messages, wire::PeerProof proof) {
  const ReplicaMessage& message = messages.front();
  const wire::ReplicateHead head{.table = message.table,
                                 .reign = message.reign,
                                 .order = message.order,
                                 .plan_version = message.plan_version,
                                 .term = message.term,
                                 .life = message.life,
                                 .serves = messages.back().serves,
                                 .peer = std::move(proof)};
  switch (message.kind) {
    case ReplicaMessage::Kind::kProbe:
      break;
    case ReplicaMessage::Kind::kUpdate: {
      std::vector<wire::ReplicateUpdate> updates;
      for (const ReplicaMessage& m : messages) {
        updates.push_back({m.update, wire::SharePayload(m.update, m.memory)});
      }
      return wire::EncodeReplicateUpdates(head, updates);
    }
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

absl::StatusOr<ReplicaAck> Decode(const absl::Status& status, grpc::ByteBuffer& reply) {
  if (!status.ok()) return status;
  const absl::StatusOr<wire::ReplicateAck> ack = wire::DecodeReplicateReply(reply);
  if (!ack.ok()) return absl::InternalError(Message(ack.status()));
  return ReplicaAck{.order = ack->order,
                    .need_snapshot = ack->need_snapshot,
                    .life = ack->life,
                    .gone = ack->gone,
                    .early_max = ack->early_max,
                    .updates_max = ack->updates_max};
}

// Memory that gRPC needs until the call is over.
struct Call {
  grpc::ClientContext context;
  grpc::ByteBuffer request;
  grpc::ByteBuffer reply;
};

// Calls without an answer yet; ended when nothing is to be sent any more.
struct Calls {
  Mutex mu;
  std::set<grpc::ClientContext*> contexts ABSL_GUARDED_BY(mu);
  bool is_over ABSL_GUARDED_BY(mu) = false;
};

// `done` (const grpc::Status&, grpc::ByteBuffer& reply) runs on gRPC's thread, never inside this.
template <typename Stub, typename Done>
void Start(std::shared_ptr<Calls> calls, std::shared_ptr<Stub> stub, const char* method,
           const grpc::ByteBuffer& request, absl::Duration timeout, Done done) {
  auto* const call = new Call;
  call->request = request;
  call->context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  {
    MutexLock lock(calls->mu);
    calls->contexts.insert(&call->context);
    if (calls->is_over) call->context.TryCancel();  // The call begins cancelled.
  }
  stub->UnaryCall(&call->context, method, grpc::StubOptions(), &call->request, &call->reply,
                  [call, stub, calls, done = std::move(done)](const grpc::Status& status) {
                    const std::unique_ptr<Call> owned(call);
                    {
                      MutexLock lock(calls->mu);
                      calls->contexts.erase(&call->context);
                    }
                    done(status, owned->reply);
                  });
}

absl::Status CannotGreet(const std::string& address, const absl::Status& why) {
  return absl::UnavailableError(
      absl::StrCat("node at ", address, " was not greeted: ", why.message()));
}

}  // namespace

// Knowledge of the process at each address.
class PeerChannel::Peers : public std::enable_shared_from_this<PeerChannel::Peers> {
 public:
  using Stub = grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>;
  // Told once, never inside Greeted; not OK: Unavailable.
  using Ready = absl::AnyInvocable<void(const absl::StatusOr<wire::PeerProof>&)>;

  Peers(const NodeKey& key, std::string name, const Clock& clock, TlsPtr tls)
      : key_(key), name_(std::move(name)), clock_(clock), tls_(std::move(tls)) {}

  const std::shared_ptr<Calls>& calls() const { return calls_; }

  std::size_t size() const {
    MutexLock lock(mu_);
    return peers_.size();
  }

  std::shared_ptr<Stub> StubFor(const std::string& address) {
    MutexLock lock(mu_);
    const absl::Time now = clock_.Now();
    if (!peers_.contains(address)) ForgetUnused(now);
    Peer& peer = peers_[address];
    peer.last_used = now;
    std::shared_ptr<Stub>& stub = peer.stub;
    if (stub == nullptr) {
      wire::KeepCallbackQueue();
      stub = std::make_shared<Stub>(
          grpc::CreateCustomChannel(address, ChannelCredentialsTo(tls_, {.role = Role::kNode}),
                                    PeerChannelArguments(absl::Seconds(1))));
    }
    return stub;
  }

  // Calls `ready` with the proof for `address`: at once, or when its process was greeted.
  void WithProof(const std::string& address, absl::Duration timeout, Ready ready) {
    wire::PeerProof proof;
    {
      MutexLock lock(mu_);
      if (!peers_.contains(address)) ForgetUnused(clock_.Now());
      Peer& peer = peers_[address];
      proof = peer.proof;
      if (proof.token.empty()) {
        peer.waiting.push_back(std::move(ready));
        if (std::exchange(peer.is_greeting, true)) return;
      }
    }
    if (proof.token.empty()) {
      Greet(address, timeout);
    } else {
      ready(proof);
    }
  }

  // The status of a call with `proof`, for the caller. A process that does not know the proof is
  // greeted again before the next call, and so is one whose connection may be another one: a
  // process takes long messages only by connections on which it was greeted.
  absl::Status Judge(const grpc::Status& status, const std::string& address,
                     const wire::PeerProof& proof) {
    const bool is_another = status.error_code() == grpc::StatusCode::UNAUTHENTICATED;
    if (!is_another && status.error_code() != grpc::StatusCode::UNAVAILABLE) {
      return wire::FromGrpc(status);
    }
    MutexLock lock(mu_);
    Peer& peer = peers_[address];
    if (peer.proof.nonce == proof.nonce) peer.proof = {};
    if (!is_another) return wire::FromGrpc(status);
    return absl::UnavailableError(absl::StrCat("the process at ", address, " is another one now"));
  }

 private:
  struct Peer {
    std::shared_ptr<Stub> stub;
    wire::PeerProof proof;  // No token: not greeted.
    bool is_greeting = false;
    std::vector<Ready> waiting;
    absl::Time last_used = absl::InfiniteFuture();  // Not yet.
    std::string last_error;
  };

  // Nodes get new addresses, and old ones are never called again. Calls in flight keep their stub.
  void ForgetUnused(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::erase_if(peers_, [now](const auto& entry) {
      const Peer& peer = entry.second;
      return !peer.is_greeting && now - peer.last_used > kUnusedMax;
    });
  }

  void Greet(const std::string& address, absl::Duration timeout) {
    const ClusterKeyPtr key = key_.current();
    if (key == nullptr) {
      Later([self = shared_from_this(), address] {
        self->Greeted(address, absl::UnavailableError("this node has no cluster key yet"));
      });
      return;
    }
    v1::PeerGreeting greeting;
    greeting.set_nonce(RandomNonce());
    greeting.set_node(name_);
    greeting.set_proof(ProveGreeting(*key, greeting.nonce(), name_));
    Start(calls_, StubFor(address), kGreet, wire::EncodeMessage(greeting, {}),
          std::min(timeout, kGreetTimeout),
          [self = shared_from_this(), address, key, greeting](const grpc::Status& status,
                                                              grpc::ByteBuffer& reply) {
            self->Greeted(address, status.ok()
                                       ? ProofFrom(*key, greeting, reply)
                                       : absl::StatusOr<wire::PeerProof>(wire::FromGrpc(status)));
          });
  }

  static absl::StatusOr<wire::PeerProof> ProofFrom(const ClusterKey& key,
                                                   const v1::PeerGreeting& greeting,
                                                   grpc::ByteBuffer& reply) {
    v1::PeerWelcome welcome;
    EMBLA_RETURN_IF_ERROR(wire::DecodeMessage(
        reply, {},
        [](int, std::size_t) -> absl::StatusOr<std::byte*> {
          return absl::InternalError("no large fields");
        },
        {}, welcome));
    const PeerNonces nonces{.caller = greeting.nonce(), .answerer = welcome.nonce()};
    if (!IsWelcome(key, nonces, welcome.proof())) {
      return absl::PermissionDeniedError("it does not prove to have this cluster's key");
    }
    return wire::PeerProof{.nonce = greeting.nonce(),
                           .node = greeting.node(),
                           .token = ProvePeer(key, nonces, greeting.node())};
  }

  void Greeted(const std::string& address, absl::StatusOr<wire::PeerProof> proof) {
    std::vector<Ready> waiting;
    {
      MutexLock lock(mu_);
      Peer& peer = peers_[address];
      peer.is_greeting = false;
      waiting = std::exchange(peer.waiting, {});
      if (proof.ok()) peer.proof = *proof;
      if (const std::string error = proof.status().ToString();
          error != std::exchange(peer.last_error, error) &&
          absl::IsPermissionDenied(proof.status())) {
        LogWarning("shard", "a node refuses this one address=", address, " reason=", error);
      }
    }
    if (!proof.ok()) proof = CannotGreet(address, proof.status());
    for (Ready& ready : waiting) ready(proof);
  }

  // Runs `task` on gRPC's thread, soon.
  static void Later(std::function<void()> task) {
    wire::KeepCallbackQueue();
    auto* const alarm = new grpc::Alarm;
    alarm->Set(std::chrono::system_clock::now(), [alarm, task = std::move(task)](bool) {
      task();
      delete alarm;
    });
  }

  const NodeKey& key_;  // Not owned; outlives the channel, whose calls alone read it.
  const std::string name_;
  const Clock& clock_;  // Likewise.
  const TlsPtr tls_;    // Null: plaintext.
  const std::shared_ptr<Calls> calls_ = std::make_shared<Calls>();

  mutable Mutex mu_;
  std::map<std::string, Peer> peers_ ABSL_GUARDED_BY(mu_);
};

PeerChannel::PeerChannel(const NodeKey& key, std::string name, const Clock& clock, TlsPtr tls)
    : peers_(std::make_shared<Peers>(key, std::move(name), clock, std::move(tls))) {}

std::size_t PeerChannel::channels() const { return peers_->size(); }

void PeerChannel::CancelCalls() {
  Calls& calls = *peers_->calls();
  MutexLock lock(calls.mu);
  calls.is_over = true;
  for (grpc::ClientContext* const context : calls.contexts) context->TryCancel();
}

void PeerChannel::Send(const NodeSpec& node, std::span<const ReplicaMessage> messages,
                       absl::Duration timeout, ReplicaDone done) {
  peers_->WithProof(node.address, timeout,
                    [peers = peers_, address = node.address, messages, timeout,
                     done = std::move(done)](const absl::StatusOr<wire::PeerProof>& proof) {
                      if (!proof.ok()) return done(proof.status());
                      Start(peers->calls(), peers->StubFor(address), kReplicate,
                            Encode(messages, *proof), timeout,
                            [peers, address, proof = *proof, done](const grpc::Status& status,
                                                                   grpc::ByteBuffer& reply) {
                              done(Decode(peers->Judge(status, address, proof), reply));
                            });
                    });
}

void PeerChannel::Send(const std::string& address, PeerMessage message, MoveTransport::Done done) {
  peers_->WithProof(address, kMoveTimeout,
                    [peers = peers_, address, message = std::move(message),
                     done = std::move(done)](const absl::StatusOr<wire::PeerProof>& proof) mutable {
                      if (!proof.ok()) return done(proof.status());
                      Start(peers->calls(), peers->StubFor(address), kMove,
                            EncodeMove(std::move(message), *proof), kMoveTimeout,
                            [peers, address, proof = *proof, done](const grpc::Status& status,
                                                                   grpc::ByteBuffer&) {
                              done(peers->Judge(status, address, proof));
                            });
                    });
}

}  // namespace embla
