#include "core/wire/replicate_codec.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/wire/large_fields.h"
#include "core/wire/request_memory.h"
#include "core/wire/request_messages.h"
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

}  // namespace

grpc::ByteBuffer EncodeReplicateProbe(const ReplicateHead& head) {
  return EncodeMessage(Envelope(head), {});
}

grpc::ByteBuffer EncodeReplicateUpdates(const ReplicateHead& head,
                                        std::span<const ReplicateUpdate> updates) {
  std::vector<v1::UpdateRequest> small;
  small.reserve(updates.size());
  std::vector<Submessage> nested;
  for (const ReplicateUpdate& update : updates) {
    small.push_back(detail::SmallPart(update.batch));
    nested.push_back({nested.empty() ? v1::ReplicateRequest::kUpdateFieldNumber
                                     : v1::ReplicateRequest::kMoreUpdatesFieldNumber,
                      &small.back(), detail::LargeFields(update.payload)});
  }
  return EncodeNested(Envelope(head), nested);
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
  ReplicateCall call;
  std::optional<RequestMemory> memory;  // Holds the update that is being read.
  const auto begin_update = [&](std::size_t bytes_of_it) {
    memory.emplace(pool, std::min(bytes_of_it, limits.request_bytes_max));
    return absl::OkStatus();
  };
  bool has_first = false;
  const auto begin_first = [&](std::size_t bytes_of_it) -> absl::Status {
    has_first = true;
    if (call.updates.empty()) return begin_update(bytes_of_it);
    return absl::InvalidArgumentError("the first update is not the first");
  };
  const auto begin_another = [&](std::size_t bytes_of_it) -> absl::Status {
    if (call.updates.size() < kReplicateUpdatesMax) return begin_update(bytes_of_it);
    return absl::InvalidArgumentError(
        absl::StrCat("more than ", kReplicateUpdatesMax, " updates in one message"));
  };
  const auto end_update = [&]() -> absl::Status {
    EMBLA_ASSIGN_OR_RETURN(UpdateCall decoded, detail::ToCall(update, *std::move(memory), limits));
    call.updates.push_back(std::move(decoded));
    return absl::OkStatus();
  };
  const NestedMessage payloads[] = {
      {v1::ReplicateRequest::kUpdateFieldNumber, detail::kUpdateLarge, &update, begin_first,
       end_update},
      {v1::ReplicateRequest::kMoreUpdatesFieldNumber, detail::kUpdateLarge, &update, begin_another,
       end_update},
      {v1::ReplicateRequest::kSnapshotFieldNumber, kSnapshotLarge, &snapshot}};
  const PlaceField place = [&](int number, std::size_t size) -> absl::StatusOr<std::byte*> {
    if (number != v1::SnapshotChunk::kRowBlockFieldNumber) return memory->Place(number, size);
    call.snapshot.row_block = pool.Take(size);
    return call.snapshot.row_block.data();
  };
  EMBLA_ASSIGN_OR_RETURN(const int number,
                         DecodeNested(bytes, payloads, place, detail::LimitsFor(limits), envelope));
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
  if (call.head.reign == 0) {
    return absl::InvalidArgumentError("reign is 0");
  }
  if (!call.updates.empty()) {
    if (!has_first) return absl::InvalidArgumentError("other updates without a first one");
    call.kind = ReplicateCall::Kind::kUpdate;
  }
  if (number == v1::ReplicateRequest::kSnapshotFieldNumber) {
    if (!call.updates.empty()) return absl::InvalidArgumentError("an update and a snapshot");
    call.kind = ReplicateCall::Kind::kSnapshot;
    call.snapshot.first = snapshot.first();
    call.snapshot.last = snapshot.last();
    EMBLA_ASSIGN_OR_RETURN(call.snapshot.windows, FromMessage(snapshot.windows()));
  }
  return call;
}

grpc::ByteBuffer EncodeReplicateReply(const ReplicateAck& ack) {
  v1::ReplicateReply message;
  message.set_order(ack.order);
  message.set_need_snapshot(ack.need_snapshot);
  message.set_life(ack.life);
  message.set_gone(ack.gone);
  message.set_early_max(ack.early_max);
  message.set_updates_max(ack.updates_max);
  return EncodeMessage(message, {});
}

absl::StatusOr<ReplicateAck> DecodeReplicateReply(grpc::ByteBuffer& bytes) {
  v1::ReplicateReply message;
  EMBLA_RETURN_IF_ERROR(DecodeMessage(
      bytes, {},
      [](int, std::size_t) -> absl::StatusOr<std::byte*> {
        return absl::InternalError("no large fields");
      },
      {}, message));
  return ReplicateAck{.order = message.order(),
                      .need_snapshot = message.need_snapshot(),
                      .life = message.life(),
                      .gone = message.gone(),
                      .early_max = message.early_max(),
                      .updates_max = message.updates_max()};
}

}  // namespace embla::wire
