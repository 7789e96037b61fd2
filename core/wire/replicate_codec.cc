#include "core/wire/replicate_codec.h"

#include <algorithm>
#include <utility>

#include "core/base/status_macros.h"
#include "core/wire/large_fields.h"
#include "core/wire/request_memory.h"
#include "core/wire/request_messages.h"
#include "core/wire/status_codec.h"
#include "embla/v1/data.pb.h"

namespace embla::wire {
namespace {

constexpr int kSnapshotLarge[] = {v1::SnapshotChunk::kRowBlockFieldNumber};

v1::ReplicateRequest Envelope(const ReplicateHead& head) {
  v1::ReplicateRequest envelope;
  envelope.set_table_id(ToInt(head.table));
  envelope.set_reign(head.reign);
  envelope.set_order(head.order);
  envelope.set_plan_version(ToInt(head.plan_version));
  envelope.set_term(ToInt(head.term));
  envelope.set_life(head.life);
  envelope.set_serves(head.serves);
  envelope.mutable_peer()->set_nonce(head.peer.nonce);
  envelope.mutable_peer()->set_node(head.peer.node);
  envelope.mutable_peer()->set_token(head.peer.token);
  return envelope;
}

absl::StatusOr<std::vector<ReplicateWindow>> FromMessage(
    const google::protobuf::RepeatedPtrField<v1::SessionWindow>& messages) {
  std::vector<ReplicateWindow> windows;
  for (const v1::SessionWindow& message : messages) {
    ReplicateWindow& window = windows.emplace_back();
    window.session = message.session();
    window.floor = message.floor();
    if (message.words_size() != static_cast<int>(window.words.size())) {
      return absl::InvalidArgumentError("a window of a session has not four words");
    }
    std::copy(message.words().begin(), message.words().end(), window.words.begin());
  }
  return windows;
}

// A message's head; what it brings is to follow. Errors: InvalidArgument.
absl::StatusOr<ReplicateCall> Begin(const v1::ReplicateRequest& envelope) {
  if (envelope.reign() == 0) return absl::InvalidArgumentError("reign is 0");
  if (envelope.more_updates_size() > 0) {
    return absl::InvalidArgumentError("more than one update in a message");
  }
  ReplicateCall call;
  call.head = {.table = TableId{envelope.table_id()},
               .reign = envelope.reign(),
               .order = envelope.order(),
               .plan_version = PlanVersion{envelope.plan_version()},
               .term = PlanVersion{envelope.term()},
               .life = envelope.life(),
               .serves = envelope.serves(),
               .peer = {.nonce = envelope.peer().nonce(),
                        .node = envelope.peer().node(),
                        .token = envelope.peer().token()}};
  return call;
}

absl::StatusOr<ReplicateCall> ToUpdate(const v1::ReplicateRequest& message,
                                       const RequestLimits& limits) {
  if (!message.has_update()) {
    return absl::InvalidArgumentError(
        "only updates of copies and messages of moves go by a data socket");
  }
  EMBLA_ASSIGN_OR_RETURN(ReplicateCall call, Begin(message));
  call.kind = ReplicateCall::Kind::kUpdate;
  EMBLA_ASSIGN_OR_RETURN(call.update, detail::ToCall(message.update(), limits));
  return call;
}

v1::ReplicateReply ToMessage(const ReplicateAck& ack) {
  v1::ReplicateReply message;
  message.set_order(ack.order);
  message.set_need_snapshot(ack.need_snapshot);
  message.set_life(ack.life);
  message.set_gone(ack.gone);
  message.set_early_max(ack.early_max);
  return message;
}

ReplicateAck FromMessage(const v1::ReplicateReply& message) {
  return {.order = message.order(),
          .need_snapshot = message.need_snapshot(),
          .life = message.life(),
          .gone = message.gone(),
          .early_max = message.early_max()};
}

}  // namespace

grpc::ByteBuffer EncodeReplicateProbe(const ReplicateHead& head) {
  return EncodeMessage(Envelope(head), {});
}

grpc::ByteBuffer EncodeReplicateUpdate(const ReplicateHead& head, const UpdateBatch& batch,
                                       const UpdatePayload& payload) {
  MessageArena arena;
  return EncodeNested(Envelope(head), v1::ReplicateRequest::kUpdateFieldNumber,
                      detail::SmallPart(batch, arena), detail::LargeFields(payload));
}

grpc::ByteBuffer EncodeReplicateSnapshot(const ReplicateHead& head, ReplicateSnapshot snapshot) {
  v1::SnapshotChunk small;
  small.set_first(snapshot.first);
  small.set_last(snapshot.last);
  for (const ReplicateWindow& window : snapshot.windows) {
    v1::SessionWindow& message = *small.add_windows();
    message.set_session(window.session);
    message.set_floor(window.floor);
    for (const std::uint64_t word : window.words) message.add_words(word);
  }
  return EncodeNested(Envelope(head), v1::ReplicateRequest::kSnapshotFieldNumber, small,
                      {{v1::SnapshotChunk::kRowBlockFieldNumber, std::move(snapshot.row_block)}});
}

absl::StatusOr<ReplicateCall> DecodeReplicateRequest(grpc::ByteBuffer& bytes, BufferPool& pool,
                                                     const RequestLimits& limits) {
  v1::ReplicateRequest envelope;
  v1::UpdateRequest update;
  v1::SnapshotChunk snapshot;
  const NestedMessage payloads[] = {
      {v1::ReplicateRequest::kUpdateFieldNumber, detail::kUpdateLarge, &update},
      {v1::ReplicateRequest::kSnapshotFieldNumber, kSnapshotLarge, &snapshot}};
  RequestMemory memory(pool, std::min(bytes.Length(), limits.request_bytes_max));
  Buffer row_block;
  const PlaceField place = [&](int number, std::size_t size) -> absl::StatusOr<std::byte*> {
    if (number != v1::SnapshotChunk::kRowBlockFieldNumber) return memory.Place(number, size);
    row_block = pool.Take(size);
    return row_block.data();
  };
  EMBLA_ASSIGN_OR_RETURN(const int number,
                         DecodeNested(bytes, payloads, place, detail::LimitsFor(limits), envelope));
  EMBLA_ASSIGN_OR_RETURN(ReplicateCall call, Begin(envelope));
  if (number == v1::ReplicateRequest::kUpdateFieldNumber) {
    call.kind = ReplicateCall::Kind::kUpdate;
    EMBLA_ASSIGN_OR_RETURN(call.update, detail::ToCall(update, std::move(memory), limits));
  } else if (number == v1::ReplicateRequest::kSnapshotFieldNumber) {
    call.kind = ReplicateCall::Kind::kSnapshot;
    call.snapshot.row_block = std::move(row_block);
    call.snapshot.first = snapshot.first();
    call.snapshot.last = snapshot.last();
    EMBLA_ASSIGN_OR_RETURN(call.snapshot.windows, FromMessage(snapshot.windows()));
  }
  return call;
}

grpc::ByteBuffer EncodeReplicateReply(const ReplicateAck& ack) {
  return EncodeMessage(ToMessage(ack), {});
}

absl::StatusOr<ReplicateAck> DecodeReplicateReply(grpc::ByteBuffer& bytes) {
  v1::ReplicateReply message;
  EMBLA_RETURN_IF_ERROR(DecodeMessage(
      bytes, {},
      [](int, std::size_t) -> absl::StatusOr<std::byte*> {
        return absl::InternalError("no large fields");
      },
      {}, message));
  return FromMessage(message);
}

Frame EncodeReplicateFrame(const ReplicateOrder& order, const ReplicateHead& head,
                           const UpdateBatch& batch, const UpdatePayload& payload) {
  v1::ReplicateRequest envelope = Envelope(head);
  envelope.set_sequence(order.sequence);
  envelope.set_deadline_ms(order.deadline_ms);
  MessageArena arena;
  return MakeFrame(Split(envelope, v1::ReplicateRequest::kUpdateFieldNumber,
                         detail::SmallPart(batch, arena), detail::LargeFields(payload)));
}

absl::StatusOr<ReplicateText> DecodeReplicateText(std::string_view text,
                                                  const RequestLimits& limits) {
  MessageArena arena;
  auto& message = arena.Make<v1::ReplicateRequest>();
  const DecodeLimits any;  // A message of a move may have so many.
  DecodeLimits text_limits = detail::LimitsFor(limits);
  text_limits.small_bytes_max = std::max(text_limits.small_bytes_max, kPeerTextBytesMin);
  text_limits.small_fields_max = std::max(text_limits.small_fields_max, any.small_fields_max);
  EMBLA_RETURN_IF_ERROR(DecodeText(text, text_limits, message));
  ReplicateText decoded{
      .order = {.sequence = message.sequence(), .deadline_ms = message.deadline_ms()},
      .move = nullptr,
      .call = ReplicateCall()};
  if (message.has_move()) {
    decoded.move = std::make_shared<const v1::MoveMessage>(message.move());
  } else {
    decoded.call = ToUpdate(message, limits);
  }
  return decoded;
}

Frame EncodeReplicateAnswer(const ReplicateAnswer& answer) {
  v1::ReplicateReply message;
  if (answer.ack.ok()) {
    message = ToMessage(*answer.ack);
  } else {
    message.set_code(static_cast<std::int32_t>(answer.ack.status().code()));
    message.set_message(StatusMessage(answer.ack.status()));
  }
  message.set_sequence(answer.sequence);
  return MakeFrame(message.SerializeAsString());
}

absl::StatusOr<ReplicateAnswer> DecodeReplicateAnswer(std::string_view text) {
  v1::ReplicateReply message;
  EMBLA_RETURN_IF_ERROR(DecodeText(text, {}, message));
  ReplicateAnswer answer{.sequence = message.sequence(), .ack = FromMessage(message)};
  if (message.code() != 0) answer.ack = StatusFromCode(message.code(), message.message());
  return answer;
}

}  // namespace embla::wire
