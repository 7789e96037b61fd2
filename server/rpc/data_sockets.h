// A unix socket beside gRPC's port, by which the requests of open streams go on (docs/
// data_sockets.md). Who connects shows a ticket that its stream was given, and is from then on what
// the stream's caller is; nobody else is served. When the stream is over, so is the socket.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "core/base/file_descriptor.h"
#include "core/base/mutex.h"
#include "core/socket/poller.h"
#include "core/wire/reply_codec.h"
#include "server/rpc/data_context.h"
#include "server/rpc/request_stream.h"

namespace embla {

class SocketStream;

// Thread safety: every method may be called from any thread.
class DataSockets {
 public:
  // `context` and `open` are not owned and outlive this object. Unavailable: no descriptors.
  static absl::StatusOr<std::unique_ptr<DataSockets>> Start(DataContext& context,
                                                            OpenStreams& open);
  // Every offer has been withdrawn, and every socket is over.
  ~DataSockets();

  // An offer for one connection, by which requests of `stream` may go on. Withdraw has to follow.
  // `before` is the ticket of the stream's offer before this one, which is withdrawn with its
  // socket. Empty: there was none.
  wire::DataSocketOffer Offer(RequestStream& stream, const std::string& before);
  // The stream takes no more requests, and neither does the socket, which ends when its replies are
  // written, or at once.
  void Withdraw(const std::string& ticket, bool at_once);

  // The socket of a ticket is ready, and is over. A ticket that was withdrawn meanwhile ends it at
  // once.
  void Add(const std::string& ticket, SocketStream& socket);
  void Remove(const std::string& ticket);

 private:
  class Listener;
  class Greeting;

  struct Offered {
    RequestStream* stream = nullptr;  // Not owned.
    bool is_used = false;
    SocketStream* socket = nullptr;  // Not owned; null before Add.
  };

  DataSockets(DataContext& context, OpenStreams& open, std::unique_ptr<Poller> poller,
              std::string address)
      : context_(context), open_(open), address_(std::move(address)), poller_(std::move(poller)) {}

  // A connection shows `ticket`. On the poller's thread.
  void Serve(FileDescriptor socket, const std::string& ticket);

  DataContext& context_;  // Not owned; outlives this object.
  OpenStreams& open_;     // Not owned; outlives this object.
  const std::string address_;

  Mutex mu_;  // Before that of a stream.
  absl::flat_hash_map<std::string, Offered> offered_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Poller> poller_;  // Last: its thread uses the others.
};

}  // namespace embla
