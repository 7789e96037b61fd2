#include "client/transport/stream_connection.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include "absl/strings/str_cat.h"
#include "client/transport/request_bytes.h"
#include "core/base/retry_hint.h"
#include "core/base/text.h"
#include "core/socket/frame_socket.h"
#include "core/wire/frame.h"
#include "core/wire/status_codec.h"
#include "embla/v1/data.pb.h"

namespace embla::client {
namespace {

constexpr char kStreamMethod[] = "/embla.v1.DataService/Stream";
// Longer replies come in pieces, so that the node gathers one while another travels.
constexpr std::uint32_t kFrameBytesMax = 2 << 20;
constexpr std::size_t kReplyTextBytesMax = std::size_t{4} << 20;
// A reply that stops in its middle breaks its connection so long after its call's deadline.
constexpr absl::Duration kLateMax = absl::Seconds(1);
constexpr int kAsksMax = 16;  // For a data socket, without one that serves.

// The node is asked first for so long after it has refused a request, and when that was welcome
// again.
constexpr absl::Duration kAsksFirstFor = absl::Seconds(10);
// A node receives a smaller request at hardly more than the cost of the question.
constexpr std::size_t kAskedBytesMin = std::size_t{64} << 10;
// A message has at most so much around its fields, in whatever way it goes.
constexpr std::size_t kFieldHeadsBytesMax = 128;

// Contributions are kept by other rules than other updates, and hold up those who wait for them.
bool IsWorthAsking(const DataRequest& request) {
  return !request.is_lookup() && !request.is_contribution() && request.bytes() >= kAskedBytesMin;
}

// The arrays of `request` go with the message.
wire::SplitMessage Encode(const wire::StreamCall& call, DataRequest& request) {
  if (request.is_lookup()) {
    auto& lookup = std::get<NodeLookup>(request.call);
    return wire::EncodeStreamLookup(call, lookup.batch, PayloadOf(lookup), kFrameBytesMax);
  }
  auto& update = std::get<NodeUpdate>(request.call);
  const bool borrows = update.borrowed_bytes > 0;
  wire::SplitMessage message = wire::EncodeStreamUpdate(call, update.batch, PayloadOf(update));
  message.borrows = borrows;
  return message;
}

std::uint32_t MillisecondsUntil(absl::Time deadline, absl::Time now) {
  const std::int64_t left = absl::ToInt64Milliseconds(deadline - now);
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(left, 1, 0xffffffff));
}

}  // namespace

// One stream's life: from StartCall to OnDone. Its state is guarded by the connection's mutex.
class StreamConnection::Stream final
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit Stream(StreamConnection& connection) : connection_(connection) {}

  void Start() {
    connection_.stub_.PrepareBidiStreamingCall(&context_, kStreamMethod, grpc::StubOptions(), this);
    StartRead(&received_);
    StartCall();
  }

  bool open() const { return open_; }
  void Cancel() {
    open_ = false;
    context_.TryCancel();
  }

  PendingCalls& calls() { return calls_; }
  // Sends `message` without waiting for its reply.
  void Write(grpc::ByteBuffer message) {
    has_written_ = true;
    writes_.push_back(std::move(message));
    if (writes_.size() == 1) StartWrite(&writes_.front());
  }
  bool has_written() const { return has_written_; }
  // Whether the next message is to ask for a data socket: the first one, and one after each socket,
  // unless several have broken before they served.
  bool asks() const { return asks_; }
  void set_asked() { asks_ = false; }
  void AskAgain(bool has_served) {
    asks_left_ = has_served ? kAsksMax : asks_left_ - 1;
    asks_ = asks_left_ > 0;
  }

  // The node's address in gRPC's words; a reply has come.
  std::string peer() const { return context_.peer(); }
  const grpc::Status& final_status() const { return final_status_; }

  void OnWriteDone(bool ok) override {
    MutexLock lock(connection_.mu_);
    writes_.pop_front();
    if (ok && open_ && !writes_.empty()) StartWrite(&writes_.front());
  }

  void OnReadDone(bool ok) override {
    if (!ok || !Receive()) {
      MutexLock lock(connection_.mu_);
      // From here on nothing is written: gRPC may be about to call OnDone.
      open_ = false;
      if (ok) context_.TryCancel();
      return;
    }
    StartRead(&received_);
  }

  void OnDone(const grpc::Status& status) override {
    final_status_ = status;
    connection_.OnStreamOver(this);  // Destroys this object.
  }

 private:
  bool Receive();

  StreamConnection& connection_;  // Not owned; outlives this object.
  grpc::ClientContext context_;
  grpc::ByteBuffer received_;
  grpc::Status final_status_;
  Buffer discarded_;  // For rows nobody waits for any more.
  bool open_ = true;
  bool has_written_ = false;
  bool asks_ = true;
  int asks_left_ = kAsksMax;
  std::deque<grpc::ByteBuffer> writes_;  // The first one is on its way.
  PendingCalls calls_;
};

// Takes in one message. False: it is no reply, so the stream cannot be trusted.
bool StreamConnection::Stream::Receive() {
  const std::size_t bytes = received_.Length();
  absl::StatusOr<wire::StreamReply> reply = wire::DecodeStreamReply(
      received_, [this](std::uint64_t sequence, std::size_t size) -> absl::StatusOr<std::byte*> {
        MutexLock lock(connection_.mu_);
        if (std::byte* const place = calls_.PlaceRows(sequence, size)) return place;
        if (discarded_.size() < size) discarded_ = Buffer::Allocate(size);
        return discarded_.data();
      });
  received_.Clear();
  if (!reply.ok()) return false;
  if (reply->kind == wire::StreamReply::Kind::kOffer) {
    connection_.TakeOffer(*this, reply->offer);
    return true;
  }
  if (const auto message = connection_.TakeReply(calls_, *std::move(reply), bytes)) {
    MutexLock lock(connection_.mu_);
    if (open_) Write(wire::Join(*message));
  }
  return true;
}

// One data socket's life: from its connection to OnClosed. Its state is guarded by the connection's
// mutex.
class StreamConnection::Socket final : public FrameSocket::Owner {
 public:
  // `stream` has been offered it.
  Socket(StreamConnection& connection, Stream& stream, bool takes_seals)
      : connection_(connection), stream_(&stream), takes_seals_(takes_seals) {}

  void set_socket(std::shared_ptr<FrameSocket> socket) { socket_ = std::move(socket); }
  // The node has taken the ticket, and the stream goes on.
  bool open() const { return welcomed_ && stream_ != nullptr; }
  bool is_of(const Stream& stream) const { return stream_ == &stream; }
  // Is over: the stream may ask for another one.
  void LetStreamAsk() {
    if (stream_ != nullptr) stream_->AskAgain(welcomed_);
  }
  // No more calls; ends when those that wait are answered, which the node sees to, or expire.
  void Leave() {
    stream_ = nullptr;
    ShutdownIfLeft();
  }
  void ShutdownIfLeft() {
    if (stream_ == nullptr && calls_.empty()) Shutdown();
  }
  void Shutdown() {
    if (socket_ != nullptr) socket_->Shutdown();
  }

  PendingCalls& calls() { return calls_; }
  bool takes_seals() const { return takes_seals_; }
  const std::shared_ptr<FrameSocket>& socket() const { return socket_; }

  absl::Status BeginFrame(std::string_view text, std::span<const wire::FrameArray> arrays,
                          std::span<std::byte*> places) override;
  absl::Status EndFrame() override;
  void OnSent() override {}
  void OnClosed(const absl::Status& why) override {
    connection_.OnSocketOver(this, why);  // Destroys this object.
  }

 private:
  StreamConnection& connection_;  // Not owned; outlives this object.
  Stream* stream_;                // Null: it is over.
  const bool takes_seals_;
  bool welcomed_ = false;
  std::shared_ptr<FrameSocket> socket_;
  PendingCalls calls_;
  // The reply whose frame comes now.
  wire::StreamReply reply_;
  std::size_t reply_bytes_ = 0;
};

absl::Status StreamConnection::Socket::BeginFrame(std::string_view text,
                                                  std::span<const wire::FrameArray> arrays,
                                                  std::span<std::byte*> places) {
  reply_bytes_ = text.size();
  if (text.empty()) return absl::OkStatus();
  std::size_t rows_bytes = 0;
  for (const wire::FrameArray& array : arrays) {
    if (array.number == v1::LookupReply::kRowsFieldNumber) rows_bytes = array.bytes;
  }
  absl::StatusOr<wire::StreamReply> reply = wire::DecodeStreamReplyText(text, rows_bytes);
  if (!reply.ok()) return reply.status();
  reply_ = *std::move(reply);
  reply_bytes_ += rows_bytes;
  if (rows_bytes == 0) return absl::OkStatus();
  MutexLock lock(connection_.mu_);
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].number != v1::LookupReply::kRowsFieldNumber) continue;
    places[i] = calls_.PlaceRows(reply_.sequence, arrays[i].bytes);
  }
  return absl::OkStatus();
}

absl::Status StreamConnection::Socket::EndFrame() {
  socket_->Want();
  if (reply_bytes_ == 0) {
    MutexLock lock(connection_.mu_);
    welcomed_ = true;
    return absl::OkStatus();
  }
  if (const auto message = connection_.TakeReply(calls_, std::move(reply_), reply_bytes_)) {
    socket_->Send(wire::MakeFrame(*message));
  }
  MutexLock lock(connection_.mu_);
  ShutdownIfLeft();
  return absl::OkStatus();
}

StreamConnection::StreamConnection(std::shared_ptr<grpc::Channel> channel, Timer& timer,
                                   const DataSocketOptions& options)
    : stub_(std::move(channel)),
      timer_(timer),
      options_(options),
      alarm_(timer, [this] { ExpireCalls(); }) {}

StreamConnection::~StreamConnection() {
  Close();
  MutexLock lock(mu_);
  while (!streams_.empty() || !sockets_.empty() || finishing_ > 0) changed_.Wait(mu_);
}

StreamConnection::Stream* StreamConnection::OpenStream() {
  if (closed_) return nullptr;
  for (const auto& stream : streams_) {
    if (stream->open()) return stream.get();
  }
  streams_.push_back(std::make_unique<Stream>(*this));
  streams_.back()->Start();
  return streams_.back().get();
}

StreamConnection::Socket* StreamConnection::OpenSocket() {
  if (closed_) return nullptr;
  for (const auto& socket : sockets_) {
    if (socket->open()) return socket.get();
  }
  return nullptr;
}

void StreamConnection::TakeOffer(Stream& stream, const wire::DataSocketOffer& offer) {
  if (options_.poller == nullptr) return;
  std::unique_ptr<Link> link = LinkTo(offer, stream.peer(), options_.taker);
  if (link == nullptr) return;
  std::shared_ptr<FrameSocket> opened;
  {
    MutexLock lock(mu_);
    if (closed_ || !stream.open()) return;
    auto socket = std::make_unique<Socket>(*this, stream, offer.takes_seals);
    auto result = FrameSocket::Open(std::move(link), *socket, *options_.poller, kReplyTextBytesMax);
    if (!result.ok()) return;
    opened = *std::move(result);
    // OnClosed, which may be on its way, waits for mu_.
    socket->set_socket(opened);
    sockets_.push_back(std::move(socket));
  }
  opened->Send(wire::MakeFrame(offer.ticket));
  opened->Want();
}

std::optional<wire::SplitMessage> StreamConnection::TakeReply(PendingCalls& calls,
                                                              wire::StreamReply reply,
                                                              std::size_t bytes) {
  std::vector<FinishedCall> finished;
  {
    MutexLock lock(mu_);
    if (auto message = calls.TakeWithheld(reply, bytes)) return message;
    auto call = calls.Receive(std::move(reply), bytes);
    if (!call.has_value()) return std::nullopt;
    if (const absl::Status& status = call->reply.status; absl::IsResourceExhausted(status)) {
      asks_first_until_ = timer_.Now() + RetryAfterOf(status) + kAsksFirstFor;
    }
    finished.push_back(*std::move(call));
    ++finishing_;
  }
  Tell(std::move(finished));
  return std::nullopt;
}

SocketPtr StreamConnection::Send(DataRequest request) {
  const absl::Time now = timer_.Now();
  wire::StreamCall call;
  call.deadline_ms = MillisecondsUntil(request.deadline, now);
  bool asks_first = false;
  {
    MutexLock lock(mu_);
    call.sequence = ++last_sequence_;
    asks_first = now < asks_first_until_ && IsWorthAsking(request);
    if (Stream* const stream = OpenStream(); stream != nullptr && options_.poller != nullptr) {
      call.asks_data_socket = stream->asks();
      stream->set_asked();
    }
  }
  std::optional<wire::SplitMessage> withheld;
  if (asks_first) {
    request.Own();
    withheld = Encode({.sequence = call.sequence, .deadline_ms = call.deadline_ms}, request);
    call.reserve = {.bytes = withheld->bytes() + kFieldHeadsBytesMax,
                    .ids = RowsOf(std::get<NodeUpdate>(request.call).batch)};
  }
  const wire::SplitMessage message =
      asks_first ? wire::EncodeStreamLookup(call, ShowingLookup(request), {}, kFrameBytesMax)
                 : Encode(call, request);
  const std::size_t sent_bytes = message.bytes();
  SocketPtr by_socket;
  std::shared_ptr<wire::Seal> seal;
  {
    MutexLock lock(mu_);
    Stream* const stream = OpenStream();
    if (stream != nullptr) alarm_.NoLaterThan(request.deadline);
    if (Socket* const socket = OpenSocket(); socket != nullptr) {
      by_socket = socket->socket();
      if (message.borrows && socket->takes_seals() && by_socket->Lends(sent_bytes)) {
        seal = wire::Seal::Make();
      }
      socket->calls().Add(call.sequence, std::move(request), sent_bytes, std::move(withheld), seal);
    } else if (stream != nullptr) {
      // The node reads one message of a stream after the other, so it knows the session in time.
      if (!stream->has_written() && sent_bytes > kFirstMessageBytesMax) {
        stream->Write(wire::Join(wire::EncodeStreamLookup(
            {.sequence = ++last_sequence_}, ShowingLookup(request), {}, kFrameBytesMax)));
      }
      stream->calls().Add(call.sequence, std::move(request), sent_bytes, std::move(withheld),
                          nullptr);
      stream->Write(wire::Join(message));
      return nullptr;
    }
  }
  // Not under the lock: replies come meanwhile. A socket that has broken has failed the call.
  if (by_socket != nullptr) {
    by_socket->Send(wire::MakeFrame(message, std::move(seal)));
    return by_socket;
  }
  request.done({.status = absl::UnavailableError("the connection was given up")});
  return nullptr;
}

void StreamConnection::ExpireCalls() {
  std::vector<FinishedCall> finished;
  {
    MutexLock lock(mu_);
    const absl::Time now = timer_.Now();
    for (const auto& stream : streams_) {
      alarm_.NoLaterThan(stream->calls().Expire(now, finished));
    }
    for (const auto& socket : sockets_) {
      alarm_.NoLaterThan(socket->calls().Expire(now, finished));
      socket->ShutdownIfLeft();
      if (now - socket->calls().late_since() > kLateMax) socket->Shutdown();
    }
    ++finishing_;
  }
  Tell(std::move(finished));
}

void StreamConnection::OnStreamOver(Stream* stream) {
  absl::Status status = wire::FromGrpc(stream->final_status());
  // However a stream ends, its calls' outcome is unknown and another stream may be tried; but one
  // whose caller is refused has carried out nothing, and another one would be refused, too.
  if (!absl::IsUnauthenticated(status)) {
    const std::string reason = status.ok() ? "the node ended the stream" : Message(status);
    status = absl::UnavailableError(absl::StrCat("the stream broke: ", reason));
  }
  std::vector<FinishedCall> finished;
  {
    MutexLock lock(mu_);
    finished = stream->calls().FailAll(status);
    ++finishing_;
    for (const auto& socket : sockets_) {
      if (socket->is_of(*stream)) socket->Leave();
    }
    std::erase_if(streams_, [&](const auto& owned) { return owned.get() == stream; });
  }
  Tell(std::move(finished));
}

void StreamConnection::OnSocketOver(Socket* socket, const absl::Status& why) {
  std::vector<FinishedCall> finished;
  std::unique_ptr<Socket> over;  // Destroyed without the lock.
  {
    MutexLock lock(mu_);
    socket->LetStreamAsk();
    finished = socket->calls().FailAll(
        absl::UnavailableError(absl::StrCat("the data socket broke: ", Message(why))));
    ++finishing_;
    const auto found = std::find_if(sockets_.begin(), sockets_.end(),
                                    [&](const auto& owned) { return owned.get() == socket; });
    over = std::move(*found);
    sockets_.erase(found);
  }
  over.reset();
  Tell(std::move(finished));
}

void StreamConnection::Tell(std::vector<FinishedCall> finished) {
  for (FinishedCall& call : finished) call.Tell();
  MutexLock lock(mu_);
  --finishing_;
  changed_.NotifyAll();
}

void StreamConnection::Close() {
  MutexLock lock(mu_);
  closed_ = true;
  for (const auto& stream : streams_) stream->Cancel();
  for (const auto& socket : sockets_) socket->Shutdown();
}

}  // namespace embla::client
