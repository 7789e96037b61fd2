#include "client/transport/stream_connection.h"

#include <algorithm>
#include <deque>
#include <utility>

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client/transport/request_bytes.h"
#include "core/base/text.h"
#include "core/wire/reply_codec.h"
#include "core/wire/status_codec.h"

namespace embla::client {
namespace {

constexpr char kStreamMethod[] = "/embla.v1.DataService/Stream";
// Longer replies come in pieces, so that the node gathers one while another travels.
constexpr std::uint32_t kFrameBytesMax = 2 << 20;

std::uint32_t MillisecondsUntil(absl::Time deadline, absl::Time now) {
  const std::int64_t left = absl::ToInt64Milliseconds(deadline - now);
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(left, 1, 0xffffffff));
}

struct Pending {
  DataRequest request;
  std::size_t sent_bytes = 0;
  std::size_t received_bytes = 0;
  std::size_t rows_bytes = 0;  // Received so far.
  bool too_many_rows = false;
  bool receiving = false;  // A frame is being copied: it may not expire now.
};

// A call that is over, to be told outside the lock.
struct Finished {
  NodeChannel::Done done;
  NodeReply reply;
};

Finished Finish(Pending pending, absl::Status status) {
  return {std::move(pending.request.done),
          {std::move(status), pending.sent_bytes, pending.received_bytes}};
}

absl::Status CheckRows(const Pending& pending) {
  const std::size_t expected = pending.request.reply_rows().size();
  if (!pending.too_many_rows && pending.rows_bytes == expected) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the reply has ", pending.rows_bytes, " bytes of rows, not ", expected));
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

  // `message` is `pending`'s, under `sequence`.
  void Write(std::uint64_t sequence, Pending pending, grpc::ByteBuffer message) {
    pending_.emplace(sequence, std::move(pending));
    Write(std::move(message));
  }
  // Sends `message` without waiting for its reply.
  void Write(grpc::ByteBuffer message) {
    has_written_ = true;
    writes_.push_back(std::move(message));
    if (writes_.size() == 1) StartWrite(&writes_.front());
  }
  bool has_written() const { return has_written_; }

  // Moves the calls whose time is over to `finished`; returns when the next one's is.
  absl::Time Expire(absl::Time now, std::vector<Finished>& finished) {
    absl::Time next = absl::InfiniteFuture();
    for (auto it = pending_.begin(); it != pending_.end();) {
      const auto entry = it++;
      const absl::Time deadline = entry->second.request.deadline;
      if (deadline > now || entry->second.receiving) {
        // A frame that is being copied now is done in a moment.
        next = std::min(next, std::max(deadline, now + absl::Milliseconds(1)));
        continue;
      }
      finished.push_back(
          Finish(std::move(entry->second), absl::DeadlineExceededError("no reply in time")));
      pending_.erase(entry);
    }
    return next;
  }

  std::vector<Finished> FailAll(const absl::Status& status) {
    std::vector<Finished> finished;
    for (auto& [sequence, pending] : pending_) {
      finished.push_back(Finish(std::move(pending), status));
    }
    pending_.clear();
    return finished;
  }

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
  std::byte* PlaceRows(std::uint64_t sequence, std::size_t size);

  StreamConnection& connection_;  // Not owned; outlives this object.
  grpc::ClientContext context_;
  grpc::ByteBuffer received_;
  grpc::Status final_status_;
  Buffer discarded_;  // For rows nobody waits for any more.
  bool open_ = true;
  bool has_written_ = false;
  std::deque<grpc::ByteBuffer> writes_;  // The first one is on its way.
  absl::flat_hash_map<std::uint64_t, Pending> pending_;
};

// Returns the memory for the next `size` bytes of rows of `sequence`. The call stays `receiving`
// until Receive has seen the whole message.
std::byte* StreamConnection::Stream::PlaceRows(std::uint64_t sequence, std::size_t size) {
  MutexLock lock(connection_.mu_);
  const auto entry = pending_.find(sequence);
  if (entry != pending_.end()) {
    Pending& pending = entry->second;
    const std::span<std::byte> rows = pending.request.reply_rows();
    const std::size_t begin = pending.rows_bytes;
    pending.rows_bytes += size;
    if (begin <= rows.size() && size <= rows.size() - begin) {
      pending.receiving = true;
      return rows.data() + begin;
    }
    pending.too_many_rows = true;
  }
  if (discarded_.size() < size) discarded_ = Buffer::Allocate(size);
  return discarded_.data();
}

// Takes in one message. False: it is no reply, so the stream cannot be trusted.
bool StreamConnection::Stream::Receive() {
  const std::size_t bytes = received_.Length();
  absl::StatusOr<wire::StreamReply> reply = wire::DecodeStreamReply(
      received_, [this](std::uint64_t sequence, std::size_t size) -> absl::StatusOr<std::byte*> {
        return PlaceRows(sequence, size);
      });
  received_.Clear();
  if (!reply.ok()) return false;
  Finished finished;
  {
    MutexLock lock(connection_.mu_);
    const auto entry = pending_.find(reply->sequence);
    if (entry == pending_.end()) return true;  // Its deadline has passed.
    Pending& pending = entry->second;
    pending.receiving = false;
    pending.received_bytes += bytes;
    if (reply->more) return true;
    absl::Status status = reply->status;
    if (status.ok()) {
      const bool is_lookup = reply->kind == wire::StreamReply::Kind::kLookup;
      if (is_lookup != pending.request.is_lookup()) {
        status = absl::InternalError("the reply is of another kind than the request");
      } else if (!is_lookup || reply->refused.empty()) {
        status = CheckRows(pending);
      }
    }
    finished = Finish(std::move(pending), std::move(status));
    finished.reply.plan_version = reply->plan_version;
    finished.reply.refused = std::move(reply->refused);
    finished.reply.refused_claims = std::move(reply->refused_claims);
    pending_.erase(entry);
    ++connection_.finishing_;
  }
  finished.done(std::move(finished.reply));
  MutexLock lock(connection_.mu_);
  --connection_.finishing_;
  connection_.changed_.NotifyAll();
  return true;
}

StreamConnection::StreamConnection(std::shared_ptr<grpc::Channel> channel, Timer& timer)
    : stub_(std::move(channel)), timer_(timer), alarm_(timer, [this] { ExpireCalls(); }) {}

StreamConnection::~StreamConnection() {
  Close();
  MutexLock lock(mu_);
  while (!streams_.empty() || finishing_ > 0) changed_.Wait(mu_);
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

void StreamConnection::Send(DataRequest request) {
  wire::StreamCall call;
  call.deadline_ms = MillisecondsUntil(request.deadline, timer_.Now());
  {
    MutexLock lock(mu_);
    call.sequence = ++last_sequence_;
  }
  grpc::ByteBuffer message;
  if (request.is_lookup()) {
    auto& lookup = std::get<NodeLookup>(request.call);
    message = wire::EncodeStreamLookup(call, lookup.batch, PayloadOf(lookup), kFrameBytesMax);
  } else {
    auto& update = std::get<NodeUpdate>(request.call);
    message = wire::EncodeStreamUpdate(call, update.batch, PayloadOf(update));
  }
  const std::size_t sent_bytes = message.Length();
  {
    MutexLock lock(mu_);
    if (Stream* stream = OpenStream()) {
      alarm_.NoLaterThan(request.deadline);
      // The node reads one message of a stream after the other, so it knows the session in time.
      if (!stream->has_written() && sent_bytes > kFirstMessageBytesMax) {
        stream->Write(wire::EncodeStreamLookup({.sequence = ++last_sequence_},
                                               ShowingLookup(request), {}, kFrameBytesMax));
      }
      stream->Write(call.sequence, {.request = std::move(request), .sent_bytes = sent_bytes},
                    message);
      return;
    }
  }
  request.done({.status = absl::UnavailableError("the connection was given up")});
}

void StreamConnection::ExpireCalls() {
  std::vector<Finished> finished;
  {
    MutexLock lock(mu_);
    for (const auto& stream : streams_) {
      alarm_.NoLaterThan(stream->Expire(timer_.Now(), finished));
    }
    ++finishing_;
  }
  for (Finished& call : finished) call.done(std::move(call.reply));
  MutexLock lock(mu_);
  --finishing_;
  changed_.NotifyAll();
}

void StreamConnection::OnStreamOver(Stream* stream) {
  absl::Status status = wire::FromGrpc(stream->final_status());
  // However a stream ends, its calls' outcome is unknown and another stream may be tried; but one
  // whose caller is refused has carried out nothing, and another one would be refused, too.
  if (!absl::IsUnauthenticated(status)) {
    const std::string reason = status.ok() ? "the node ended the stream" : Message(status);
    status = absl::UnavailableError(absl::StrCat("the stream broke: ", reason));
  }
  std::vector<Finished> finished;
  {
    MutexLock lock(mu_);
    finished = stream->FailAll(status);
    ++finishing_;
    std::erase_if(streams_, [&](const auto& owned) { return owned.get() == stream; });
  }
  for (Finished& call : finished) call.done(std::move(call.reply));
  MutexLock lock(mu_);
  --finishing_;
  changed_.NotifyAll();
}

void StreamConnection::Close() {
  MutexLock lock(mu_);
  closed_ = true;
  for (const auto& stream : streams_) stream->Cancel();
}

}  // namespace embla::client
