#include "server/rpc/peer_channel.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/functional/any_invocable.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/text.h"
#include "core/socket/connect.h"
#include "core/socket/poller.h"
#include "core/wire/callback_queue.h"
#include "core/wire/large_fields.h"
#include "core/wire/replicate_codec.h"
#include "core/wire/status_codec.h"
#include "embla/v1/data.pb.h"
#include "server/rpc/channel_arguments.h"
#include "server/rpc/key_proofs.h"
#include "server/rpc/move_codec.h"
#include "server/rpc/peer_socket.h"
#include "server/rpc/replica_codec.h"

namespace embla {
namespace {

constexpr char kReplicate[] = "/embla.v1.DataService/Replicate";
constexpr char kMove[] = "/embla.v1.DataService/Move";
constexpr char kGreet[] = "/embla.v1.DataService/Greet";

// A message of a move that takes longer counts as lost, and is said again.
constexpr absl::Duration kMoveTimeout = absl::Seconds(10);
constexpr absl::Duration kGreetTimeout = absl::Seconds(5);
// Updates that are sent together, by a data socket.
constexpr std::uint64_t kUpdatesTogetherMax = 64;
// A channel that nobody uses for so long is closed when the next one is made.
constexpr absl::Duration kUnusedMax = absl::Minutes(10);

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

// `done` (const grpc::Status&, Call&) runs on gRPC's thread, never inside this.
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
                    done(status, *owned);
                  });
}

absl::StatusOr<ReplicaAck> Decode(grpc::ByteBuffer& reply) {
  const absl::StatusOr<wire::ReplicateAck> ack = wire::DecodeReplicateReply(reply);
  if (!ack.ok()) return absl::InternalError(Message(ack.status()));
  return FromWire(*ack);
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

  Peers(const NodeKey& key, std::string name, const Clock& clock, TlsPtr tls, Poller* poller,
        OfferTaker taker)
      : key_(key),
        name_(std::move(name)),
        clock_(clock),
        tls_(std::move(tls)),
        poller_(poller),
        taker_(std::move(taker)) {}

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

  // Calls `ready` with the proof for `address`: at once, or when its process was greeted, and has
  // been asked for a data socket, if one is wanted.
  void WithProof(const std::string& address, bool wants_socket, absl::Duration timeout,
                 Ready ready) {
    wire::PeerProof proof;
    {
      MutexLock lock(mu_);
      if (!peers_.contains(address)) ForgetUnused(clock_.Now());
      Peer& peer = peers_[address];
      wants_socket = wants_socket && peer.socket == nullptr && !peer.was_asked;
      if (!wants_socket) proof = peer.proof;
      if (proof.token.empty()) {
        peer.waiting.push_back(std::move(ready));
        if (std::exchange(peer.is_greeting, true)) return;
        peer.was_asked = peer.was_asked || wants_socket;
      }
    }
    if (proof.token.empty()) {
      Greet(address, wants_socket, timeout);
    } else {
      ready(proof);
    }
  }

  // Null: the process takes no updates by one, or, if it is for moves, no messages of these.
  std::shared_ptr<PeerSocket> SocketTo(const std::string& address, bool for_moves = false) {
    MutexLock lock(mu_);
    const auto found = peers_.find(address);
    if (found == peers_.end()) return nullptr;
    found->second.last_used = clock_.Now();
    return for_moves && !found->second.moves_by_socket ? nullptr : found->second.socket;
  }

  // The status of a call with `proof`, for the caller. A process that does not know the proof is
  // greeted again before the next call, and so is one whose connection may be another one: a
  // process takes long messages only by connections on which it was greeted.
  absl::Status Judge(const absl::Status& status, const std::string& address,
                     const wire::PeerProof& proof) {
    const bool is_another = absl::IsUnauthenticated(status);
    if (!is_another && !absl::IsUnavailable(status)) return status;
    MutexLock lock(mu_);
    Peer& peer = peers_[address];
    if (peer.proof.nonce == proof.nonce) peer.proof = {};
    if (!is_another) return status;
    return absl::UnavailableError(absl::StrCat("the process at ", address, " is another one now"));
  }

  // Ends the data sockets, now and later.
  void EndSockets() {
    MutexLock lock(mu_);
    ends_sockets_ = true;
    for (const std::shared_ptr<PeerSocket>& socket : sockets_) socket->Shutdown();
  }
  void AwaitSockets() {
    MutexLock lock(mu_);
    while (!sockets_.empty()) socket_is_over_.Wait(mu_);
  }

 private:
  struct Peer {
    std::shared_ptr<Stub> stub;
    wire::PeerProof proof;  // No token: not greeted.
    bool is_greeting = false;
    bool was_asked = false;              // For a data socket.
    std::shared_ptr<PeerSocket> socket;  // Null: there is none that takes messages.
    bool moves_by_socket = false;
    std::vector<Ready> waiting;
    absl::Time last_used = absl::InfiniteFuture();  // Not yet.
    std::string last_error;
  };

  // Nodes get new addresses, and old ones are never called again. Calls in flight keep their stub.
  void ForgetUnused(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::erase_if(peers_, [now](const auto& entry) {
      const Peer& peer = entry.second;
      const bool is_unused = !peer.is_greeting && now - peer.last_used > kUnusedMax;
      if (is_unused && peer.socket != nullptr) peer.socket->Shutdown();
      return is_unused;
    });
  }

  void Greet(const std::string& address, bool asks_socket, absl::Duration timeout) {
    const ClusterKeyPtr key = key_.current();
    if (key == nullptr) {
      wire::RunLater(absl::ZeroDuration(), [self = shared_from_this(), address] {
        self->Greeted(address, absl::UnavailableError("this node has no cluster key yet"));
      });
      return;
    }
    v1::PeerGreeting greeting;
    greeting.set_nonce(RandomNonce());
    greeting.set_node(name_);
    greeting.set_proof(ProveGreeting(*key, greeting.nonce(), name_));
    greeting.set_asks_data_socket(asks_socket);
    Start(calls_, StubFor(address), kGreet, wire::EncodeMessage(greeting, {}),
          std::min(timeout, kGreetTimeout),
          [self = shared_from_this(), address, key, greeting](const grpc::Status& status,
                                                              Call& call) {
            if (!status.ok()) return self->Greeted(address, wire::FromGrpc(status));
            self->Welcomed(address, *key, greeting, call);
          });
  }

  void Welcomed(const std::string& address, const ClusterKey& key, const v1::PeerGreeting& greeting,
                Call& call) {
    v1::PeerWelcome welcome;
    absl::Status status = wire::DecodeMessage(
        call.reply, {},
        [](int, std::size_t) -> absl::StatusOr<std::byte*> {
          return absl::InternalError("no large fields");
        },
        {}, welcome);
    const PeerNonces nonces{.caller = greeting.nonce(), .answerer = welcome.nonce()};
    if (status.ok() && !IsWelcome(key, nonces, welcome.proof())) {
      status = absl::PermissionDeniedError("it does not prove to have this cluster's key");
    }
    if (!status.ok()) return Greeted(address, status);
    const wire::PeerProof proof{.nonce = greeting.nonce(),
                                .node = greeting.node(),
                                .token = ProvePeer(key, nonces, greeting.node())};
    {
      MutexLock lock(mu_);
      peers_[address].moves_by_socket = welcome.moves_by_socket();
    }
    const v1::DataSocket& socket = welcome.data_socket();
    Open({.address = socket.address(), .ticket = socket.ticket(), .by_port = socket.by_port()},
         call.context.peer(), address, proof);
  }

  // Greeted, once it is known whether the process at `address`, which gRPC calls `peer`, takes
  // messages by the socket that it offers.
  void Open(const wire::DataSocketOffer& offer, const std::string& peer, const std::string& address,
            const wire::PeerProof& proof) {
    std::unique_ptr<Link> link;
    if (poller_ != nullptr && !offer.ticket.empty()) link = LinkTo(offer, peer, taker_);
    if (link == nullptr) return Greeted(address, proof);
    std::shared_ptr<PeerSocket> socket;
    {
      MutexLock lock(mu_);
      socket = std::make_shared<PeerSocket>(PeerSocket::Events{
          .on_ready =
              [self = shared_from_this(), address,
               proof](const std::shared_ptr<PeerSocket>& ready) {
                self->Greeted(address, proof, ready);
              },
          .on_over = [self = shared_from_this(), address](
                         const std::shared_ptr<PeerSocket>& over) { self->Over(address, over); }});
      sockets_.insert(socket);
      if (ends_sockets_) socket->Shutdown();
    }
    socket->Start(std::move(link), offer.ticket, *poller_, kGreetTimeout);
  }

  // The next message that would go by it asks for another one.
  void Over(const std::string& address, const std::shared_ptr<PeerSocket>& over) {
    MutexLock lock(mu_);
    sockets_.erase(over);
    socket_is_over_.NotifyAll();
    const auto found = peers_.find(address);
    if (found == peers_.end() || found->second.socket != over) return;
    found->second.socket = nullptr;
    found->second.was_asked = false;
  }

  void Greeted(const std::string& address, absl::StatusOr<wire::PeerProof> proof,
               const std::shared_ptr<PeerSocket>& socket = nullptr) {
    std::vector<Ready> waiting;
    {
      MutexLock lock(mu_);
      Peer& peer = peers_[address];
      peer.is_greeting = false;
      waiting = std::exchange(peer.waiting, {});
      if (proof.ok()) peer.proof = *proof;
      if (socket != nullptr) peer.socket = socket;
      if (const std::string error = proof.status().ToString();
          error != std::exchange(peer.last_error, error) &&
          absl::IsPermissionDenied(proof.status())) {
        LogWarning("shard", "a node refuses this one address=", address, " reason=", error);
      }
    }
    if (!proof.ok()) proof = CannotGreet(address, proof.status());
    for (Ready& ready : waiting) ready(proof);
  }

  const NodeKey& key_;  // Not owned; outlives the channel, whose calls alone read it.
  const std::string name_;
  const Clock& clock_;  // Likewise.
  const TlsPtr tls_;    // Null: plaintext.
  const std::shared_ptr<Calls> calls_ = std::make_shared<Calls>();

  Poller* const poller_;  // Not owned; outlives the sockets. Null: there are none.
  const OfferTaker taker_;

  mutable Mutex mu_;
  CondVar socket_is_over_;
  bool ends_sockets_ ABSL_GUARDED_BY(mu_) = false;
  std::set<std::shared_ptr<PeerSocket>> sockets_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Peer> peers_ ABSL_GUARDED_BY(mu_);
};

PeerChannel::PeerChannel(const NodeKey& key, std::string name, const Clock& clock, TlsPtr tls) {
  // Without memory or descriptors for them, updates go by gRPC.
  absl::StatusOr<TlsContext> context = ClientContext(tls);
  absl::StatusOr<std::unique_ptr<Poller>> poller = Poller::Start();
  if (context.ok() && poller.ok()) poller_ = *std::move(poller);
  OfferTaker taker{.tls = context.ok() ? *std::move(context) : nullptr,
                   .node = {.role = Role::kNode}};
  peers_ = std::make_shared<Peers>(key, std::move(name), clock, std::move(tls), poller_.get(),
                                   std::move(taker));
}

PeerChannel::~PeerChannel() {
  peers_->EndSockets();
  peers_->AwaitSockets();
}

std::size_t PeerChannel::channels() const { return peers_->size(); }

void PeerChannel::CancelCalls() {
  peers_->EndSockets();
  Calls& calls = *peers_->calls();
  MutexLock lock(calls.mu);
  calls.is_over = true;
  for (grpc::ClientContext* const context : calls.contexts) context->TryCancel();
}

void PeerChannel::Send(const NodeSpec& node, std::span<const ReplicaMessage> messages,
                       absl::Duration timeout, ReplicaDone done) {
  peers_->WithProof(node.address, /*wants_socket=*/true, timeout,
                    [peers = peers_, address = node.address, messages, timeout,
                     done = std::move(done)](const absl::StatusOr<wire::PeerProof>& proof) {
                      if (!proof.ok()) return done(proof.status());
                      SendTo(peers, address, *proof, messages, timeout, done);
                    });
}

void PeerChannel::SendTo(const std::shared_ptr<Peers>& peers, const std::string& address,
                         const wire::PeerProof& proof, std::span<const ReplicaMessage> messages,
                         absl::Duration timeout, const ReplicaDone& done) {
  const auto judge = [peers, address, proof, done](absl::StatusOr<ReplicaAck> ack) {
    const bool has_socket = peers->SocketTo(address) != nullptr;
    if (!ack.ok()) return done(peers->Judge(ack.status(), address, proof));
    ack->updates_max = has_socket ? kUpdatesTogetherMax : 1;
    done(ack);
  };
  if (messages.front().kind() == ReplicaMessage::Kind::kUpdate) {
    const std::shared_ptr<PeerSocket> socket = peers->SocketTo(address);
    if (socket != nullptr && socket->Send(messages, proof, timeout, judge)) return;
  }
  if (messages.size() > 1) {
    wire::RunLater(absl::ZeroDuration(), [address, done] {
      done(absl::UnavailableError(absl::StrCat("the data socket to ", address, " is over")));
    });
    return;
  }
  Start(peers->calls(), peers->StubFor(address), kReplicate, EncodeReplica(messages.front(), proof),
        timeout, [judge](const grpc::Status& status, Call& call) {
          judge(status.ok() ? Decode(call.reply) : wire::FromGrpc(status));
        });
}

// Chunks that nobody waits for stay calls: what comes behind them by a socket would wait for them.
void PeerChannel::Send(const std::string& address, PeerMessage message, MoveTransport::Done done) {
  const bool by_socket = message.is_urgent || !std::holds_alternative<Chunk>(message.body);
  peers_->WithProof(
      address, by_socket, kMoveTimeout,
      [peers = peers_, address, by_socket, message = std::move(message),
       done = std::move(done)](const absl::StatusOr<wire::PeerProof>& proof) mutable {
        if (!proof.ok()) return done(proof.status());
        const auto judge = [peers, address, proof = *proof, done](const absl::Status& status) {
          done(peers->Judge(status, address, proof));
        };
        const std::shared_ptr<PeerSocket> socket =
            by_socket ? peers->SocketTo(address, /*for_moves=*/true) : nullptr;
        if (socket != nullptr && socket->Send(std::move(message), *proof, kMoveTimeout, judge)) {
          return;
        }
        Start(peers->calls(), peers->StubFor(address), kMove,
              EncodeMove(std::move(message), *proof), kMoveTimeout,
              [judge](const grpc::Status& status, Call&) { judge(wire::FromGrpc(status)); });
      });
}

}  // namespace embla
