#include "core/wire/reply_codec.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/retry_hint.h"
#include "core/base/status_macros.h"
#include "core/wire/large_fields.h"
#include "core/wire/message_arena.h"
#include "core/wire/status_codec.h"
#include "embla/v1/data.pb.h"

namespace embla::wire {
namespace {

constexpr int kRows[] = {v1::LookupReply::kRowsFieldNumber};
// The caller knows what it asked for; `place` refuses what it did not.
constexpr DecodeLimits kReplyLimits{.large_bytes_max = std::size_t{1} << 31,
                                    .small_fields_max = std::size_t{1} << 22};

void ToMessage(const RefusedUnit& unit, v1::RefusedUnit& refused) {
  refused.set_part(unit.part);
  refused.set_row_begin(unit.row_begin);
  refused.set_row_end(unit.row_end);
  refused.set_reason(static_cast<v1::RefusedUnit::Reason>(unit.reason));
  refused.set_retry_after_ms(unit.retry_after_ms);
  refused.set_plan_version(ToInt(unit.plan_version));
  refused.set_column_begin(unit.column_begin);
  refused.set_column_end(unit.column_end);
  refused.set_owner(ToInt(unit.owner));
  refused.set_epoch(unit.epoch);
}

v1::LookupReply SmallPart(const LookupReply& reply) {
  v1::LookupReply small;
  small.set_plan_version(ToInt(reply.plan_version));
  for (const RefusedUnit& unit : reply.refused) ToMessage(unit, *small.add_refused());
  return small;
}

v1::UpdateReply ToMessage(const UpdateReply& reply) {
  v1::UpdateReply message;
  message.set_plan_version(ToInt(reply.plan_version));
  message.set_duplicate(reply.duplicate);
  for (const RefusedUnit& unit : reply.refused) ToMessage(unit, *message.add_refused());
  for (const RefusedClaim& claim : reply.refused_claims) {
    v1::RefusedClaim& refused = *message.add_refused_claims();
    refused.mutable_units()->set_column_granule(claim.units.column_granule);
    refused.mutable_units()->set_granule_begin(claim.units.begin);
    refused.mutable_units()->set_granule_end(claim.units.end);
    refused.set_reason(static_cast<v1::RefusedClaim::Reason>(claim.reason));
    refused.set_retry_after_ms(claim.retry_after_ms);
    refused.set_plan_version(ToInt(claim.plan_version));
    refused.set_owner(ToInt(claim.owner));
    refused.set_epoch(claim.epoch);
  }
  return message;
}

// A reason that this version does not know is as good as any that says: again soon.
RefusedUnit::Reason ReasonOf(const v1::RefusedUnit& message) {
  switch (message.reason()) {
    case v1::RefusedUnit::REASON_MOVED:
      return RefusedUnit::Reason::kMoved;
    case v1::RefusedUnit::REASON_EPOCH_AHEAD:
      return RefusedUnit::Reason::kEpochAhead;
    case v1::RefusedUnit::REASON_SEQ_TOO_NEW:
      return RefusedUnit::Reason::kSeqTooNew;
    default:
      return RefusedUnit::Reason::kFrozen;
  }
}

RefusedClaim::Reason ReasonOf(const v1::RefusedClaim& message) {
  switch (message.reason()) {
    case v1::RefusedClaim::REASON_MOVED:
      return RefusedClaim::Reason::kMoved;
    case v1::RefusedClaim::REASON_AGAIN:
      return RefusedClaim::Reason::kAgain;
    default:
      return RefusedClaim::Reason::kFrozen;
  }
}

RefusedUnit FromMessage(const v1::RefusedUnit& refused) {
  return {.part = refused.part(),
          .row_begin = refused.row_begin(),
          .row_end = refused.row_end(),
          .reason = ReasonOf(refused),
          .retry_after_ms = refused.retry_after_ms(),
          .plan_version = PlanVersion{refused.plan_version()},
          .column_begin = refused.column_begin(),
          .column_end = refused.column_end(),
          .owner = NodeId{refused.owner()},
          .epoch = refused.epoch()};
}

LookupReply FromMessage(const v1::LookupReply& message) {
  LookupReply reply;
  reply.plan_version = PlanVersion{message.plan_version()};
  for (const v1::RefusedUnit& refused : message.refused()) {
    reply.refused.push_back(FromMessage(refused));
  }
  return reply;
}

absl::StatusOr<UpdateReply> FromMessage(const v1::UpdateReply& message) {
  UpdateReply reply;
  reply.plan_version = PlanVersion{message.plan_version()};
  reply.duplicate = message.duplicate();
  for (const v1::RefusedUnit& refused : message.refused()) {
    reply.refused.push_back(FromMessage(refused));
  }
  for (const v1::RefusedClaim& refused : message.refused_claims()) {
    const v1::UnitRun& run = refused.units();
    if (run.granule_begin() >= run.granule_end()) {
      return absl::InvalidArgumentError("malformed message: a refused claim without units");
    }
    RefusedClaim& claim = reply.refused_claims.emplace_back();
    claim.units = {run.column_granule(), run.granule_begin(), run.granule_end()};
    claim.reason = ReasonOf(refused);
    claim.retry_after_ms = refused.retry_after_ms();
    claim.plan_version = PlanVersion{refused.plan_version()};
    claim.owner = NodeId{refused.owner()};
    claim.epoch = refused.epoch();
  }
  return reply;
}

// `lookup` and `update` may be null.
absl::Status Fill(const v1::StreamReply& envelope, const v1::LookupReply* lookup,
                  const v1::UpdateReply* update, StreamReply& reply) {
  reply.sequence = envelope.sequence();
  reply.more = envelope.more();
  if (envelope.code() != 0) {
    reply.status = StatusFromCode(envelope.code(), envelope.message());
    if (envelope.retry_after_ms() > 0 && !reply.status.ok()) {
      reply.status =
          WithRetryAfter(std::move(reply.status), absl::Milliseconds(envelope.retry_after_ms()));
    }
  } else if (lookup != nullptr) {
    reply.kind = StreamReply::Kind::kLookup;
    LookupReply decoded = FromMessage(*lookup);
    reply.plan_version = decoded.plan_version;
    reply.refused = std::move(decoded.refused);
  } else if (update != nullptr) {
    reply.kind = StreamReply::Kind::kUpdate;
    EMBLA_ASSIGN_OR_RETURN(UpdateReply decoded, FromMessage(*update));
    reply.plan_version = decoded.plan_version;
    reply.duplicate = decoded.duplicate;
    reply.refused = std::move(decoded.refused);
    reply.refused_claims = std::move(decoded.refused_claims);
  } else if (envelope.has_data_socket()) {
    reply.kind = StreamReply::Kind::kOffer;
    const v1::DataSocket& offer = envelope.data_socket();
    reply.offer = {offer.address(), offer.ticket(), offer.by_port(), offer.takes_seals()};
  } else {
    return absl::InvalidArgumentError("malformed message: a reply with neither result nor error");
  }
  return absl::OkStatus();
}

PlaceField Ignore() {
  return [](int, std::size_t) -> absl::StatusOr<std::byte*> {
    return absl::InvalidArgumentError("malformed message: rows where none belong");
  };
}

}  // namespace

grpc::ByteBuffer EncodeLookupReply(const LookupReply& reply, SharedBuffer rows) {
  return EncodeMessage(SmallPart(reply), {{v1::LookupReply::kRowsFieldNumber, std::move(rows)}});
}

grpc::ByteBuffer EncodeUpdateReply(const UpdateReply& reply) {
  return EncodeMessage(ToMessage(reply), {});
}

std::vector<SplitMessage> EncodeStreamLookupReply(std::uint64_t sequence, const LookupReply& reply,
                                                  const SharedBuffer& rows,
                                                  const StreamFrames& frames) {
  const std::size_t size = rows.size();
  const std::size_t bytes_max = frames.bytes_max == 0 ? size : frames.bytes_max;
  const v1::LookupReply small = SmallPart(reply);
  std::vector<SplitMessage> messages;
  std::size_t begin = 0;
  do {
    const std::size_t end = std::min(size, begin + bytes_max);
    v1::StreamReply envelope;
    envelope.set_sequence(sequence);
    envelope.set_more(frames.more || end < size);
    messages.push_back(Split(envelope, v1::StreamReply::kLookupFieldNumber, small,
                             {{v1::LookupReply::kRowsFieldNumber, rows.Part(begin, end)}}));
    begin = end;
  } while (begin < size);
  return messages;
}

SplitMessage EncodeStreamUpdateReply(std::uint64_t sequence, const UpdateReply& reply) {
  v1::StreamReply envelope;
  envelope.set_sequence(sequence);
  return Split(envelope, v1::StreamReply::kUpdateFieldNumber, ToMessage(reply), {});
}

SplitMessage EncodeStreamOffer(const DataSocketOffer& offer) {
  v1::StreamReply envelope;
  v1::DataSocket& socket = *envelope.mutable_data_socket();
  socket.set_address(offer.address);
  socket.set_ticket(offer.ticket);
  socket.set_by_port(offer.by_port);
  socket.set_takes_seals(offer.takes_seals);
  return {.envelope = envelope.SerializeAsString(), .small = {}, .fields = {}};
}

SplitMessage EncodeStreamError(std::uint64_t sequence, const absl::Status& status) {
  EMBLA_CHECK(!status.ok());
  v1::StreamReply envelope;
  envelope.set_sequence(sequence);
  envelope.set_code(static_cast<std::int32_t>(status.code()));
  envelope.set_message(StatusMessage(status));
  envelope.set_retry_after_ms(
      static_cast<std::uint32_t>(absl::ToInt64Milliseconds(RetryAfterOf(status))));
  return {.envelope = envelope.SerializeAsString(), .small = {}, .fields = {}};
}

absl::StatusOr<LookupReply> DecodeLookupReply(grpc::ByteBuffer& bytes, const PlaceRows& place) {
  v1::LookupReply small;
  EMBLA_RETURN_IF_ERROR(DecodeMessage(
      bytes, kRows, [&place](int, std::size_t size) { return place(size); }, kReplyLimits, small));
  return FromMessage(small);
}

absl::StatusOr<UpdateReply> DecodeUpdateReply(grpc::ByteBuffer& bytes) {
  v1::UpdateReply small;
  EMBLA_RETURN_IF_ERROR(DecodeMessage(bytes, {}, Ignore(), kReplyLimits, small));
  return FromMessage(small);
}

absl::StatusOr<StreamReply> DecodeStreamReply(grpc::ByteBuffer& bytes,
                                              const PlaceStreamRows& place) {
  v1::StreamReply envelope;
  v1::LookupReply lookup;
  v1::UpdateReply update;
  const NestedMessage replies[] = {{v1::StreamReply::kLookupFieldNumber, kRows, &lookup},
                                   {v1::StreamReply::kUpdateFieldNumber, {}, &update}};
  StreamReply reply;
  const PlaceField place_field = [&](int, std::size_t size) {
    reply.rows_bytes = size;
    return place(envelope.sequence(), size);
  };
  EMBLA_ASSIGN_OR_RETURN(const int number,
                         DecodeNested(bytes, replies, place_field, kReplyLimits, envelope));
  EMBLA_RETURN_IF_ERROR(
      Fill(envelope, number == v1::StreamReply::kLookupFieldNumber ? &lookup : nullptr,
           number == v1::StreamReply::kUpdateFieldNumber ? &update : nullptr, reply));
  return reply;
}

absl::StatusOr<StreamReply> DecodeStreamReplyText(std::string_view text, std::size_t rows_bytes) {
  MessageArena arena;
  auto& message = arena.Make<v1::StreamReply>();
  EMBLA_RETURN_IF_ERROR(DecodeText(text, kReplyLimits, message));
  StreamReply reply;
  reply.rows_bytes = rows_bytes;
  EMBLA_RETURN_IF_ERROR(Fill(message, message.has_lookup() ? &message.lookup() : nullptr,
                             message.has_update() ? &message.update() : nullptr, reply));
  return reply;
}

}  // namespace embla::wire
