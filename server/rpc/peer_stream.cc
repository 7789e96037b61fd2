#include "server/rpc/peer_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/wire/request_codec.h"
#include "server/rpc/data_sockets.h"
#include "server/rpc/move_codec.h"
#include "server/rpc/replica_codec.h"

namespace embla {

void PeerStream::Serve(std::unique_ptr<Link> link, Poller& poller, DataContext& context,
                       DataSockets& sockets, std::optional<Identity> caller) {
  const std::shared_ptr<PeerStream> stream(new PeerStream(context, sockets, std::move(caller)));
  stream->self_ = stream;
  absl::StatusOr<std::shared_ptr<FrameSocket>> opened = FrameSocket::Open(
      std::move(link), *stream, poller,
      std::max(wire::TextBytesMax(context.options.limits), wire::kPeerTextBytesMin));
  if (!opened.ok()) return stream->OnClosed(opened.status());
  stream->socket_ = *std::move(opened);
  sockets.Add(*stream);
  stream->socket_->Send(wire::MakeFrame(""));
  stream->ReadMore();
}

PeerStream::PeerStream(DataContext& context, DataSockets& sockets, std::optional<Identity> caller)
    : context_(context),
      sockets_(sockets),
      caller_(std::move(caller)),
      until_(context.options.connection_age == absl::ZeroDuration()
                 ? absl::InfiniteFuture()
                 : context.clock.Now() + context.options.connection_age) {
  context_.shard.data_sockets.Add(1);
}

PeerStream::~PeerStream() {
  context_.shard.data_sockets.Add(-1);
  sockets_.Remove(*this);
}

absl::Status PeerStream::BeginFrame(std::string_view text, std::span<const wire::FrameArray> arrays,
                                    std::span<std::byte*> places) {
  // Its certificate may not be good any more: another ticket is for who is judged again.
  if (context_.clock.Now() >= until_) return absl::UnavailableError("the connection is too old");
  EMBLA_ASSIGN_OR_RETURN(wire::ReplicateText decoded,
                         wire::DecodeReplicateText(text, context_.options.limits));
  std::size_t bytes = text.size();
  for (const wire::FrameArray& array : arrays) bytes += array.bytes;
  Incoming& incoming = incoming_.emplace();
  incoming.text = std::move(decoded);
  incoming.bytes = bytes;
  incoming.start = context_.clock.Now();
  // Arrays of a message that is refused take no memory.
  if (incoming.text.move != nullptr) {
    incoming.rows = PlaceMove(incoming, arrays, places);
  } else if (absl::Status placed = PlaceUpdate(incoming, arrays, places); !placed.ok()) {
    incoming.text.call = std::move(placed);
  }
  MutexLock lock(mu_);
  ++in_flight_;
  in_flight_bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status PeerStream::Check(const wire::PeerProof& proof, std::size_t bytes) const {
  EMBLA_RETURN_IF_ERROR(context_.CheckPeer(proof, caller_));
  if (bytes > context_.options.limits.request_bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat("a message of ", bytes, " bytes, at most ",
                                                   context_.options.limits.request_bytes_max,
                                                   " allowed"));
  }
  return absl::OkStatus();
}

absl::Status PeerStream::PlaceUpdate(Incoming& incoming, std::span<const wire::FrameArray> arrays,
                                     std::span<std::byte*> places) {
  EMBLA_RETURN_IF_ERROR(incoming.text.call.status());
  EMBLA_RETURN_IF_ERROR(Check(incoming.text.call->head.peer, incoming.bytes));
  wire::RequestMemory& memory = incoming.memory.emplace(context_.pool, incoming.bytes);
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const auto number = static_cast<int>(arrays[i].number);
    if (!wire::IsArray(/*is_update=*/true, number)) continue;
    EMBLA_ASSIGN_OR_RETURN(places[i], memory.Place(number, arrays[i].bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<Buffer> PeerStream::PlaceMove(const Incoming& incoming,
                                             std::span<const wire::FrameArray> arrays,
                                             std::span<std::byte*> places) {
  EMBLA_RETURN_IF_ERROR(Check(ProofOf(*incoming.text.move), incoming.bytes));
  const auto are_rows = [](const wire::FrameArray& array) {
    return array.number == v1::MoveChunk::kRowsFieldNumber;
  };
  const auto found = std::ranges::find_if(arrays, are_rows);
  if (found == arrays.end()) return Buffer();
  // Before there is a place, which would have to outlive this call.
  if (std::any_of(found + 1, arrays.end(), are_rows)) {
    return absl::InvalidArgumentError("the rows of a chunk come twice");
  }
  Buffer rows = context_.pool.Take(found->bytes);
  places[static_cast<std::size_t>(found - arrays.begin())] = rows.data();
  return rows;
}

absl::Status PeerStream::EndFrame() {
  Incoming incoming = *std::exchange(incoming_, std::nullopt);
  const Arrived arrived{.order = incoming.text.order,
                        .is_move = incoming.text.move != nullptr,
                        .bytes = incoming.bytes,
                        .start = incoming.start};
  if (arrived.is_move) {
    EndMove(std::move(incoming), arrived);
  } else {
    EndUpdate(std::move(incoming), arrived);
  }
  {
    MutexLock lock(mu_);
    reading_ = false;
  }
  ReadMore();
  return absl::OkStatus();
}

void PeerStream::EndUpdate(Incoming incoming, const Arrived& arrived) {
  absl::StatusOr<wire::ReplicateCall>& call = incoming.text.call;
  if (call.ok()) {
    absl::Status attached = wire::AttachArrays(*std::move(incoming.memory), call->update);
    if (!attached.ok()) call = std::move(attached);
  }
  absl::StatusOr<ReplicaMessage> message =
      call.ok() ? FromWire(*std::move(call)) : absl::StatusOr<ReplicaMessage>(call.status());
  const ReplicaDone done = [self = shared_from_this(), arrived](absl::StatusOr<ReplicaAck> ack) {
    self->Answer(arrived, ack);
  };
  if (!message.ok()) return done(message.status());
  const absl::Duration stated = absl::Milliseconds(arrived.order.deadline_ms);
  const absl::Duration most = context_.options.deadline_max;
  context_.node.ApplyReplicated(
      *std::move(message),
      arrived.start + (arrived.order.deadline_ms == 0 ? most : std::min(stated, most)), done);
}

void PeerStream::EndMove(Incoming incoming, const Arrived& arrived) {
  absl::Status taken = incoming.rows.status();
  if (taken.ok()) {
    absl::StatusOr<PeerMessage> message =
        FromMessage(*incoming.text.move, *std::move(incoming.rows));
    taken = message.ok() ? context_.TakeMove(*std::move(message)) : message.status();
  }
  Answer(arrived, taken.ok() ? absl::StatusOr<ReplicaAck>(ReplicaAck()) : taken);
}

void PeerStream::Answer(const Arrived& arrived, const absl::StatusOr<ReplicaAck>& ack) {
  std::size_t sent_bytes = 0;
  if (arrived.order.sequence != 0) {
    wire::ReplicateAnswer answer{.sequence = arrived.order.sequence};
    if (ack.ok()) {
      answer.ack = ToWire(*ack);
    } else {
      answer.ack = context_.Answer(ack.status());
    }
    wire::Frame frame = wire::EncodeReplicateAnswer(answer);
    sent_bytes = frame.bytes();
    socket_->Send(std::move(frame));
  }
  context_.Count(arrived.is_move ? context_.move : context_.replicate, ack.status(), arrived.start,
                 arrived.bytes, sent_bytes);
  {
    MutexLock lock(mu_);
    --in_flight_;
    in_flight_bytes_ -= arrived.bytes;
  }
  ReadMore();
}

void PeerStream::ReadMore() {
  {
    MutexLock lock(mu_);
    const DataServiceOptions& options = context_.options;
    const bool has_room = in_flight_ == 0 || (in_flight_ < options.stream_requests_max &&
                                              in_flight_bytes_ < options.stream_bytes_max);
    if (reading_ || !has_room) return;
    reading_ = true;
  }
  socket_->Want();
}

void PeerStream::OnClosed(const absl::Status&) {
  incoming_.reset();
  self_.reset();  // May destroy this.
}

}  // namespace embla
