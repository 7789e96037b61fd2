// Sockets beside gRPC, by which the requests of open streams go on, and updates of copies come from
// other nodes (docs/data_sockets.md): a unix socket for this host, and connections of the node's
// port that greet with kHello for others. Who connects shows a ticket that its stream or its
// greeting was given, and is from then on what that one's caller is; nobody else is served. When a
// stream is over, so is its socket.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "core/base/file_descriptor.h"
#include "core/base/mutex.h"
#include "core/socket/link.h"
#include "core/socket/poller.h"
#include "core/wire/reply_codec.h"
#include "server/rpc/data_context.h"
#include "server/rpc/request_stream.h"

namespace embla {

class PeerStream;
class SocketStream;

// Thread safety: every method may be called from any thread.
class DataSockets {
 public:
  // `context`, `open` and `metrics`, which may be null, are not owned and outlive this object.
  // Unavailable: no descriptors.
  static absl::StatusOr<std::unique_ptr<DataSockets>> Start(DataContext& context, OpenStreams& open,
                                                            Metrics* metrics);
  // Every offer to a stream has been withdrawn, and its socket is over. Take is not called any
  // more. Ends the sockets of other nodes, and waits until this node has answered all that came by
  // them.
  ~DataSockets();

  // A connection of the node's port, which greets with kHello.
  void Take(FileDescriptor socket);

  // An offer for one connection, by which requests of `stream` may go on. Withdraw has to follow.
  // `before` is the ticket of the stream's offer before this one, which is withdrawn with its
  // socket. Empty: there was none.
  wire::DataSocketOffer Offer(RequestStream& stream, const std::string& before);
  // The same for another node, which has greeted. `caller` as in DataContext::CheckPeer.
  wire::DataSocketOffer OfferToPeer(std::optional<Identity> caller);
  // The stream takes no more requests, and neither does the socket, which ends when its replies are
  // written, or at once.
  void Withdraw(const std::string& ticket, bool at_once);

  // The socket of a ticket is ready, and is over. A ticket that was withdrawn meanwhile ends it at
  // once.
  void Add(const std::string& ticket, SocketStream& socket);
  void Remove(const std::string& ticket);
  // Another node's socket is ready; and the object is over.
  void Add(PeerStream& peer);
  void Remove(PeerStream& peer);

 private:
  class Listener;
  class Greeting;

  struct Offered {
    RequestStream* stream = nullptr;  // Not owned.
    bool is_used = false;
    SocketStream* socket = nullptr;  // Not owned; null before Add.
  };
  struct OfferedToPeer {
    std::string ticket;
    std::optional<Identity> caller;
  };

  DataSockets(DataContext& context, OpenStreams& open, TlsContext tls, std::string address)
      : context_(context), open_(open), tls_(std::move(tls)), address_(std::move(address)) {}

  // A connection that has to show a ticket. On any thread.
  void Await(std::unique_ptr<Link> link);
  // The poller of the next connection.
  Poller& NextPoller();
  wire::DataSocketOffer MakeOffer() const;
  // Nothing: there is none with this ticket.
  std::optional<OfferedToPeer> TakeOfferToPeer(const std::string& ticket)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A connection shows `ticket`. On the thread of `poller`.
  void Serve(std::unique_ptr<Link> link, const std::string& ticket, Poller& poller);

  DataContext& context_;  // Not owned; outlives this object.
  OpenStreams& open_;     // Not owned; outlives this object.
  const TlsContext tls_;  // For the node's port.
  const std::string address_;

  Mutex mu_;  // Before that of a stream.
  CondVar peer_is_over_;
  bool ends_peers_ ABSL_GUARDED_BY(mu_) = false;
  std::list<OfferedToPeer> offered_to_peers_ ABSL_GUARDED_BY(mu_);  // Unused, the oldest first.
  absl::flat_hash_set<PeerStream*> peers_ ABSL_GUARDED_BY(mu_);     // Not owned; that are ready.
  std::size_t peers_left_ ABSL_GUARDED_BY(mu_) = 0;                 // All of them.
  absl::flat_hash_map<std::string, Offered> offered_ ABSL_GUARDED_BY(mu_);
  std::list<std::weak_ptr<Greeting>> greetings_ ABSL_GUARDED_BY(mu_);  // The oldest first.
  std::size_t turn_ ABSL_GUARDED_BY(mu_) = 0;
  // Last: their threads use the others. Handshakes have one of their own, so that strangers cost
  // trainers no time.
  std::vector<std::unique_ptr<Poller>> pollers_;
  std::unique_ptr<Poller> greeter_;
};

}  // namespace embla
