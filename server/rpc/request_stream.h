// Many data requests in flight from one client, by whatever brings the messages: the stream of a
// gRPC call (stream_call.h) or a data socket (socket_stream.h).
//
// Requests go to the node in the order in which they arrive; replies are written as they finish.
// The stream is read on only while the requests in flight, from arrival until their reply is
// written, are within the limits: a client that does not read its replies is not read either.
//
// Lives until its transport is over and the last reply has come from the node, then deletes itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/mutex.h"
#include "core/wire/reply_codec.h"
#include "core/wire/request_codec.h"
#include "server/rpc/connection_shares.h"
#include "server/rpc/data_context.h"

namespace embla {

class RequestStream;

// The open streams of a service, so that it can end them.
// Lock order: mu_, then RequestStream::mu_.
class OpenStreams {
 public:
  void Add(RequestStream* stream);
  void Remove(RequestStream* stream);
  // Every stream, also one that opens later: takes no more requests and ends with UNAVAILABLE once
  // its replies are written.
  void DrainAll();

 private:
  Mutex mu_;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<RequestStream*> streams_ ABSL_GUARDED_BY(mu_);
};

// The other end, as judged when the stream was opened.
struct StreamCaller {
  ConnectionId connection{};
  std::optional<Identity> identity;
  absl::Status may_update;  // Streams are open to more callers than updates are.
};

class RequestStream {
 public:
  RequestStream(const RequestStream&) = delete;
  RequestStream& operator=(const RequestStream&) = delete;

  // Takes no more requests, and ends once the replies are written.
  void Drain(const absl::Status& why);

  const StreamCaller& caller() const { return caller_; }
  // Another stream goes on for this one, which does not end before EndBeside. False: it has ended.
  bool BeginBeside();
  void EndBeside();

 protected:
  // A request on its way, from its arrival until its reply is written.
  struct InFlight {
    std::uint64_t sequence = 0;
    std::size_t bytes = 0;  // Counted against stream_bytes_max.
    // Shared by the copies of this; released with the reply.
    std::shared_ptr<Admission> admission;
    std::size_t request_bytes = 0;
    absl::Time start;
    std::size_t sent_bytes = 0;  // Rows that went before the end of the request.
    RequestTracePtr trace = nullptr;
  };
  struct Arrival {
    InFlight in_flight;
    absl::Time deadline = {};
    absl::Status status;  // Not OK: the answer.
  };

  // `context` and `open` are not owned and outlive the stream, which `gauge` counts.
  RequestStream(DataContext& context, OpenStreams& open, StreamCaller caller, Gauge gauge);
  virtual ~RequestStream() = default;

  // Call once, when the transport is ready: requests may come.
  void Open();

  // --- What the transport does. All but StartWrite under mu_, so nothing here may be called back
  // --- from them.

  // Brings the next request: TakeRequest, and what follows it.
  virtual void StartRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) = 0;
  // Then Written, which it may call itself. Before that it is called again only as often as
  // writes_max says.
  virtual void StartWrite(wire::SplitMessage message) = 0;
  virtual std::size_t writes_max() const { return 1; }
  // Everything is written. Then Ended.
  virtual void Finish(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) = 0;
  // For requests that ask, and have shown a session. Nothing: none is offered.
  virtual std::optional<wire::DataSocketOffer> OfferDataSocket() { return std::nullopt; }

  // --- What it tells.

  // No more requests come.
  void EndReads();
  // A request has come. False: it is not taken, and the transport brings no more. True: the stream
  // lives at least until FinishTaking.
  bool TakeRequest();
  // Looks at a request of `bytes` bytes, all but its arrays. Execute has to follow.
  Arrival Begin(wire::StreamRequest& request, std::size_t bytes);
  void Execute(Arrival arrival, wire::StreamRequest request);
  // Not OK: no request could be made of what came, and the stream ends.
  void FinishTaking(const absl::Status& status);
  void Written(bool ok);
  // The client reads and sends no more. Written may still come.
  void Cancel();
  // Nothing more comes from the transport. May delete this.
  void Ended();

  DataContext& context_;  // Not owned; outlives this object.
  OpenStreams& open_;     // Not owned; outlives this object.
  const StreamCaller caller_;
  const Gauge gauge_;
  Mutex mu_;

 private:
  struct Write {
    wire::SplitMessage message;      // Until it is in the transport.
    std::size_t released_bytes = 0;  // Once written.
    std::shared_ptr<Admission> admission = nullptr;
    bool last = false;  // True: last message of its request.
  };

  // A request's demand on memory and quotas, and who is charged for it.
  struct Need {
    InFlightHolder holder;
    std::size_t rows = 0;
    std::size_t bytes = 0;
  };
  // Room for an update that its client has asked for, and not sent yet.
  struct Room {
    Need need;
    std::shared_ptr<Admission> admission;
    absl::Time until;
  };

  // Counts a request as in flight; RESOURCE_EXHAUSTED: see DataContext::Admit.
  absl::Status Admit(InFlight& request, const Need& need);
  // Null: nothing was kept under this sequence, or too little.
  std::shared_ptr<Admission> TakeRoom(std::uint64_t sequence, const Need& need);
  // Keeps the admission of `request` for the update that follows.
  absl::Status KeepRoom(const InFlight& request, const Need& need, absl::Time until);
  // A lookup's session is 0 afterwards unless it is open (request_origin.h).
  absl::Status CheckOrigin(wire::StreamRequest& request);
  // Returns the holder charged for a call whose origin is right; the connection has shown its
  // session.
  InFlightHolder ShownHolder(const std::variant<wire::LookupCall, UpdateBatch>& call);
  void ExecuteLookup(wire::LookupCall call, const InFlight& request, absl::Time deadline);
  void ExecuteUpdate(UpdateBatch batch, const InFlight& request, absl::Time deadline);
  // Messages that do not end a request.
  void Send(std::vector<wire::SplitMessage> messages);
  // The request is executed. May delete this.
  void Reply(const InFlight& request, MethodMetrics& method, const absl::Status& status,
             std::vector<wire::SplitMessage> messages);
  // The same, for what is no lookup or update.
  void Answer(const InFlight& request, std::vector<wire::SplitMessage> messages);

  void ReadMore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The messages that may be written now; Start has to follow, without mu_.
  std::vector<wire::SplitMessage> TakeWrites() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Start(std::vector<wire::SplitMessage> writes);
  void FinishIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Abandon() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Release(const Write& write) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Status result_ ABSL_GUARDED_BY(mu_);
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool reads_done_ ABSL_GUARDED_BY(mu_) = false;  // No more requests will be taken.
  std::size_t writing_ ABSL_GUARDED_BY(mu_) = 0;  // The first of writes_ are in the transport.
  bool broken_ ABSL_GUARDED_BY(mu_) = false;      // The client reads no more replies.
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;           // The transport holds no reference any more.
  std::uint32_t executing_ ABSL_GUARDED_BY(mu_) = 0;  // And streams beside this one.
  std::uint32_t in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  std::size_t in_flight_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Write> writes_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::uint64_t, Room> rooms_ ABSL_GUARDED_BY(mu_);  // By sequence.
};

}  // namespace embla
