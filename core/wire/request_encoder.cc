#include "core/wire/request_codec.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "core/wire/large_fields.h"
#include "core/wire/request_messages.h"
#include "embla/v1/data.pb.h"

namespace embla::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "payloads are little-endian");

using Memory = std::shared_ptr<const void>;

// Whether the pieces are one stretch of memory.
template <typename T>
bool AreOne(const std::vector<std::span<const T>>& pieces) {
  const T* end = nullptr;
  for (const auto& piece : pieces) {
    if (piece.empty()) continue;
    if (end != nullptr && piece.data() != end) return false;
    end = piece.data() + piece.size();
  }
  return true;
}

// `memory` keeps the pieces; null: they are copied.
template <typename T>
grpc::Slice Join(const std::vector<std::span<const T>>& pieces, const Memory& memory) {
  std::size_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size_bytes();
  if (memory != nullptr && bytes > 0 && AreOne(pieces)) {
    const auto first = std::ranges::find_if(pieces, [](const auto& p) { return !p.empty(); });
    return SliceOf({reinterpret_cast<const std::byte*>(first->data()), bytes}, memory);
  }
  Buffer buffer = Buffer::Allocate(bytes);
  std::size_t offset = 0;
  for (const auto& piece : pieces) {
    if (piece.empty()) continue;
    std::memcpy(buffer.data() + offset, piece.data(), piece.size_bytes());
    offset += piece.size_bytes();
  }
  return SliceOf(std::move(buffer));
}

template <typename T, typename Part>
grpc::Slice JoinParts(const std::vector<Part>& parts, std::span<const T> Part::*array,
                      const Memory& memory = nullptr) {
  std::vector<std::span<const T>> pieces;
  pieces.reserve(parts.size());
  for (const Part& part : parts) pieces.push_back(part.*array);
  return Join(pieces, memory);
}

const v1::LookupRequest& SmallPart(const LookupBatch& batch, std::uint32_t frame_bytes_max,
                                   MessageArena& arena) {
  auto& small = arena.Make<v1::LookupRequest>();
  small.set_plan_version(ToInt(batch.plan_version));
  small.set_session(ToInt(batch.session));
  if (batch.proof != SessionProof{})
    small.set_session_proof(batch.proof.data(), batch.proof.size());
  small.set_wire_dtype(static_cast<v1::WireDType>(batch.wire_dtype));
  small.set_frame_bytes_max(frame_bytes_max);
  small.set_takes_refused(batch.takes_refused);
  if (batch.trace.is_set()) small.set_traceparent(batch.trace.ToString());
  for (const LookupPart& part : batch.parts) {
    v1::LookupPart& out = *small.add_parts();
    out.set_table_id(ToInt(part.table));
    out.set_replica_group(part.replica_group);
    out.set_pooling(static_cast<v1::Pooling>(part.pooling));
    out.set_column_begin(part.column_begin);
    out.set_column_end(part.column_end);
    out.set_ids_count(static_cast<std::uint32_t>(part.ids.size()));
    out.set_bags_count(static_cast<std::uint32_t>(part.lengths.size()));
    out.set_weighted(!part.weights.empty());
  }
  return small;
}

std::vector<LargeField> LargeFields(const LookupPayload& payload) {
  return {{v1::LookupRequest::kIdsFieldNumber, payload.ids},
          {v1::LookupRequest::kLengthsFieldNumber, payload.lengths},
          {v1::LookupRequest::kWeightsFieldNumber, payload.weights}};
}

void ToMessage(const StepClaim& claim, v1::StepClaim& message) {
  message.set_table_id(ToInt(claim.table));
  message.set_rank(ToInt(claim.rank));
  message.set_resumes(claim.resumes);
  for (const UnitSet::Run& run : claim.units.runs()) {
    v1::UnitRun& units = *message.add_units();
    units.set_column_granule(run.column_granule);
    units.set_granule_begin(run.begin);
    units.set_granule_end(run.end);
  }
}

v1::StreamRequest Envelope(const StreamCall& call) {
  v1::StreamRequest envelope;
  envelope.set_sequence(call.sequence);
  envelope.set_deadline_ms(call.deadline_ms);
  envelope.set_asks_data_socket(call.asks_data_socket);
  envelope.set_reserve_bytes(call.reserve.bytes);
  envelope.set_reserve_ids(call.reserve.ids);
  return envelope;
}

}  // namespace

namespace detail {

const v1::UpdateRequest& SmallPart(const UpdateBatch& batch, MessageArena& arena) {
  auto& small = arena.Make<v1::UpdateRequest>();
  small.set_plan_version(ToInt(batch.plan_version));
  small.set_session(ToInt(batch.session));
  if (batch.proof != SessionProof{})
    small.set_session_proof(batch.proof.data(), batch.proof.size());
  small.set_seq(ToInt(batch.seq));
  small.set_routed_since(ToInt(batch.routed_since));
  small.set_first_incomplete(ToInt(batch.first_incomplete));
  small.set_step(batch.step);
  if (batch.trace.is_set()) small.set_traceparent(batch.trace.ToString());
  small.set_wire_dtype(static_cast<v1::WireDType>(batch.wire_dtype));
  for (const UpdatePart& part : batch.parts) {
    v1::UpdatePart& out = *small.add_parts();
    out.set_table_id(ToInt(part.table));
    out.set_replica_group(part.replica_group);
    out.set_form(static_cast<v1::GradientForm>(part.form));
    if (part.form == UpdatePart::Form::kBags) {
      out.set_pooling(static_cast<v1::Pooling>(part.pooling));
    }
    out.set_column_begin(part.column_begin);
    out.set_column_end(part.column_end);
    out.set_ids_count(static_cast<std::uint32_t>(part.ids.size()));
    out.set_bags_count(static_cast<std::uint32_t>(part.lengths.size()));
    out.set_weighted(!part.weights.empty());
    out.set_has_row_sum_squares(!part.row_sum_squares.empty());
    out.set_clipped(part.clipped);
    out.set_ttl_steps(part.ttl_steps);
    if (part.learning_rate.has_value()) out.set_learning_rate(*part.learning_rate);
    out.set_state_floats(part.state_floats);
    out.set_state_only(part.state_only);
  }
  if (batch.claim.has_value()) ToMessage(*batch.claim, *small.mutable_claim());
  return small;
}

std::vector<LargeField> LargeFields(const UpdatePayload& payload) {
  std::vector<LargeField> fields = {
      {v1::UpdateRequest::kIdsFieldNumber, payload.ids},
      {v1::UpdateRequest::kLengthsFieldNumber, payload.lengths},
      {v1::UpdateRequest::kWeightsFieldNumber, payload.weights},
      {v1::UpdateRequest::kRowSumSquaresFieldNumber, payload.row_sum_squares}};
  fields.reserve(fields.size() + payload.gradients.size());
  for (const grpc::Slice& piece : payload.gradients) {
    fields.emplace_back(v1::UpdateRequest::kGradientsFieldNumber, piece);
  }
  return fields;
}

}  // namespace detail

LookupPayload GatherPayload(const LookupBatch& batch) {
  return {.ids = JoinParts(batch.parts, &LookupPart::ids),
          .lengths = JoinParts(batch.parts, &LookupPart::lengths),
          .weights = JoinParts(batch.parts, &LookupPart::weights)};
}

UpdatePayload GatherPayload(const UpdateBatch& batch) {
  const Memory& memory = batch.memory.memory();
  return {.ids = JoinParts(batch.parts, &UpdatePart::ids, memory),
          .lengths = JoinParts(batch.parts, &UpdatePart::lengths, memory),
          .weights = JoinParts(batch.parts, &UpdatePart::weights, memory),
          .row_sum_squares = JoinParts(batch.parts, &UpdatePart::row_sum_squares, memory),
          .gradients = {JoinParts(batch.parts, &UpdatePart::gradients, memory)}};
}

grpc::ByteBuffer EncodeLookupRequest(const LookupBatch& batch, const LookupPayload& payload) {
  MessageArena arena;
  return EncodeMessage(SmallPart(batch, 0, arena), LargeFields(payload));
}

grpc::ByteBuffer EncodeUpdateRequest(const UpdateBatch& batch, const UpdatePayload& payload) {
  MessageArena arena;
  return EncodeMessage(detail::SmallPart(batch, arena), detail::LargeFields(payload));
}

SplitMessage EncodeStreamLookup(const StreamCall& call, const LookupBatch& batch,
                                const LookupPayload& payload, std::uint32_t frame_bytes_max) {
  MessageArena arena;
  return Split(Envelope(call), v1::StreamRequest::kLookupFieldNumber,
               SmallPart(batch, frame_bytes_max, arena), LargeFields(payload));
}

SplitMessage EncodeStreamUpdate(const StreamCall& call, const UpdateBatch& batch,
                                const UpdatePayload& payload) {
  MessageArena arena;
  return Split(Envelope(call), v1::StreamRequest::kUpdateFieldNumber,
               detail::SmallPart(batch, arena), detail::LargeFields(payload));
}

}  // namespace embla::wire
