// Data calls on one long-lived bidirectional stream, many in flight, matched by sequence number.
//
// Where the node offers a data socket (docs/data_sockets.md), further calls go by it once it is
// connected, and the stream stays open beside it. When it breaks, they go by the stream again.
//
// A node that has refused a request for want of room is asked for some, for a while, before an
// update's gradients are sent (docs/protocol.md, "Asking first").
//
// A broken stream or socket fails its calls with Unavailable; the next call opens another stream
// (gRPC itself backs off between attempts to connect). Rows are copied once, from where they were
// received to where the request wants them, and by a data socket not even that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/transport/data_request.h"
#include "client/transport/pending_calls.h"
#include "client/transport/timer.h"
#include "core/base/mutex.h"
#include "core/socket/connect.h"
#include "core/socket/poller.h"
#include "core/wire/reply_codec.h"

namespace embla::client {

struct DataSocketOptions {
  Poller* poller = nullptr;  // Not owned; outlives the connection. Null: no data sockets.
  OfferTaker taker = {};
};

// Thread safety: every method may be called from any thread.
class StreamConnection final : public DataConnection {
 public:
  // `timer` is not owned; outlives this object.
  StreamConnection(std::shared_ptr<grpc::Channel> channel, Timer& timer,
                   const DataSocketOptions& options);
  // Waits until every call's done has run.
  ~StreamConnection() override;

  SocketPtr Send(DataRequest request) override;
  void Close() override;

 private:
  class Stream;
  class Socket;
  friend class Stream;
  friend class Socket;

  // The open stream, or a new one. Null when closed.
  Stream* OpenStream() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Null: there is none, or none yet.
  Socket* OpenSocket() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeOffer(Stream& stream, const wire::DataSocketOffer& offer);
  // A reply to one of `calls` has come, in `bytes` bytes, and its rows are placed. Returns what is
  // to be sent now.
  std::optional<wire::SplitMessage> TakeReply(PendingCalls& calls, wire::StreamReply reply,
                                              std::size_t bytes);
  void ExpireCalls();
  void OnStreamOver(Stream* stream);
  void OnSocketOver(Socket* socket, const absl::Status& why);
  // Tells calls that are over. Requires: finishing_ has counted this.
  void Tell(std::vector<FinishedCall> finished);

  grpc::GenericStub stub_;
  Timer& timer_;
  const DataSocketOptions options_;

  Mutex mu_;  // Also guards the members of streams and sockets.
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::uint64_t last_sequence_ ABSL_GUARDED_BY(mu_) = 0;
  // Until then the node is asked first whether an update is welcome.
  absl::Time asks_first_until_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  int finishing_ ABSL_GUARDED_BY(mu_) = 0;  // Threads that run done functions.
  // At most one of each is open; the others wait for the last word.
  std::vector<std::unique_ptr<Stream>> streams_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Socket>> sockets_ ABSL_GUARDED_BY(mu_);
  Alarm alarm_;  // Last: its function uses the others.
};

}  // namespace embla::client
