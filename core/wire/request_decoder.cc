#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/rows/row_block.h"
#include "core/wire/large_fields.h"
#include "core/wire/payload_cursor.h"
#include "core/wire/request_codec.h"
#include "core/wire/request_memory.h"
#include "core/wire/request_messages.h"
#include "embla/v1/data.pb.h"

namespace embla::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "payloads are little-endian");

constexpr std::uint32_t kFrameBytesMax = 4 << 20;
constexpr int kClaimRunsMax = 4096;
constexpr int kLookupLarge[] = {v1::LookupRequest::kIdsFieldNumber,
                                v1::LookupRequest::kLengthsFieldNumber,
                                v1::LookupRequest::kWeightsFieldNumber};

// A span of so many entries that have not come.
template <typename T>
std::span<const T> Sized(std::size_t size) {
  return {static_cast<const T*>(nullptr), size};
}

absl::StatusOr<DType> ToDType(v1::WireDType dtype) {
  if (dtype == v1::WIRE_DTYPE_UNSPECIFIED) return DType::kFloat32;
  if (v1::WireDType_IsValid(dtype)) return static_cast<DType>(dtype);
  return absl::InvalidArgumentError(
      absl::StrCat("wire_dtype is ", static_cast<int>(dtype), ", not one of 1 (fp32) to 4 (int8)"));
}

absl::StatusOr<SessionProof> ProofFrom(const std::string& bytes) {
  SessionProof proof{};
  if (bytes.empty()) return proof;
  if (bytes.size() != proof.size()) {
    return absl::InvalidArgumentError(absl::StrCat("session_proof has ", bytes.size(),
                                                   " bytes; OpenSession returns ", proof.size()));
  }
  std::copy(bytes.begin(), bytes.end(), proof.begin());
  return proof;
}

// Checks that lookups and updates share.
template <typename Part>
absl::Status CheckShape(std::size_t index, const Part& part) {
  if (part.column_begin() >= part.column_end() || part.column_end() > kDimMax) {
    return PartError(index, absl::StrCat("columns [", part.column_begin(), ", ", part.column_end(),
                                         ") are not within 0 to ", kDimMax));
  }
  if (part.table_id() == 0) return PartError(index, "table_id is 0");
  return absl::OkStatus();
}

absl::Status CheckLengths(std::size_t index, std::span<const std::uint32_t> lengths,
                          std::size_t ids) {
  std::uint64_t sum = 0;
  for (const std::uint32_t length : lengths) sum += length;
  if (sum == ids) return absl::OkStatus();
  return PartError(index, absl::StrCat("bag lengths sum to ", sum, ", ids_count is ", ids));
}

template <typename Parts>
absl::Status CheckCounts(const Parts& parts, const RequestLimits& limits) {
  if (static_cast<std::uint64_t>(parts.size()) > limits.parts_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("request has ", parts.size(), " parts, at most ", limits.parts_max));
  }
  std::uint64_t ids = 0;
  std::uint64_t bags = 0;
  for (const auto& part : parts) {
    ids += part.ids_count();
    bags += part.bags_count();
  }
  if (ids > limits.ids_max || bags > limits.ids_max) {
    return absl::InvalidArgumentError(absl::StrCat("request has ", ids, " ids and ", bags,
                                                   " bags, at most ", limits.ids_max, " each"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::uint32_t> FrameBytes(std::uint32_t asked) {
  if (asked == 0 || asked >= kFrameBytesMin) return std::min(asked, kFrameBytesMax);
  return absl::InvalidArgumentError(
      absl::StrCat("frame_bytes_max is ", asked, ", at least ", kFrameBytesMin, " or 0"));
}

absl::Status CheckLookupPart(std::size_t i, const v1::LookupPart& from) {
  EMBLA_RETURN_IF_ERROR(CheckShape(i, from));
  if (!v1::Pooling_IsValid(from.pooling()) || from.pooling() == v1::POOLING_UNSPECIFIED) {
    return PartError(i, absl::StrCat("pooling is ", static_cast<int>(from.pooling()),
                                     ", not 1 (none), 2 (sum) or 3 (mean)"));
  }
  if (from.pooling() == v1::POOLING_NONE && from.bags_count() != 0) {
    return PartError(i, "bags_count with pooling 1 (none)");
  }
  if (from.weighted() && from.pooling() != v1::POOLING_SUM) {
    return PartError(i, "weights go with pooling 2 (sum) only");
  }
  return absl::OkStatus();
}

// The arrays of a lookup's parts.
struct LookupCursors {
  PayloadCursor<RowId> ids;
  PayloadCursor<std::uint32_t> lengths;
  PayloadCursor<float> weights;

  static absl::StatusOr<LookupCursors> Over(const RequestMemory& memory) {
    using Request = v1::LookupRequest;
    EMBLA_ASSIGN_OR_RETURN(auto ids,
                           PayloadCursor<RowId>::Over(memory, Request::kIdsFieldNumber, "ids"));
    EMBLA_ASSIGN_OR_RETURN(auto lengths, PayloadCursor<std::uint32_t>::Over(
                                             memory, Request::kLengthsFieldNumber, "lengths"));
    EMBLA_ASSIGN_OR_RETURN(
        auto weights, PayloadCursor<float>::Over(memory, Request::kWeightsFieldNumber, "weights"));
    return LookupCursors{ids, lengths, weights};
  }

  // Sizes are known.
  absl::Status Take(std::size_t i, LookupPart& part) {
    EMBLA_ASSIGN_OR_RETURN(part.ids, ids.Take(i, part.ids.size()));
    EMBLA_ASSIGN_OR_RETURN(part.lengths, lengths.Take(i, part.lengths.size()));
    EMBLA_ASSIGN_OR_RETURN(part.weights, weights.Take(i, part.weights.size()));
    if (part.pooling == Pooling::kNone) return absl::OkStatus();
    return CheckLengths(i, part.lengths, part.ids.size());
  }

  absl::Status CheckEmpty() const {
    EMBLA_RETURN_IF_ERROR(ids.CheckEmpty());
    EMBLA_RETURN_IF_ERROR(lengths.CheckEmpty());
    return weights.CheckEmpty();
  }
};

// Everything but the arrays.
absl::StatusOr<LookupCall> ToCall(const v1::LookupRequest& small, const RequestLimits& limits) {
  EMBLA_RETURN_IF_ERROR(CheckCounts(small.parts(), limits));
  LookupCall call;
  call.batch.plan_version = PlanVersion{small.plan_version()};
  call.batch.session = SessionId{small.session()};
  EMBLA_ASSIGN_OR_RETURN(call.batch.proof, ProofFrom(small.session_proof()));
  EMBLA_ASSIGN_OR_RETURN(call.batch.wire_dtype, ToDType(small.wire_dtype()));
  call.batch.takes_refused = small.takes_refused();
  call.batch.trace = TraceContext::Parse(small.traceparent());
  EMBLA_ASSIGN_OR_RETURN(call.frame_bytes_max, FrameBytes(small.frame_bytes_max()));
  call.batch.parts.resize(static_cast<std::size_t>(small.parts_size()));
  for (std::size_t i = 0; i < call.batch.parts.size(); ++i) {
    const v1::LookupPart& from = small.parts(static_cast<int>(i));
    EMBLA_RETURN_IF_ERROR(CheckLookupPart(i, from));
    LookupPart& part = call.batch.parts[i];
    part.table = TableId{from.table_id()};
    part.replica_group = from.replica_group();
    part.pooling = static_cast<Pooling>(from.pooling());
    part.column_begin = from.column_begin();
    part.column_end = from.column_end();
    part.ids = Sized<RowId>(from.ids_count());
    part.lengths = Sized<std::uint32_t>(from.bags_count());
    part.weights = Sized<float>(from.weighted() ? from.ids_count() : 0);
    // No overflow: CheckCounts bounds the rows, kDimMax the bytes of each.
    call.reply_bytes += part.output_rows() * RowBytes(call.batch.wire_dtype, part.columns());
    if (call.batch.wire_dtype == DType::kInt8Rowwise) {
      call.staged_bytes += part.output_rows() * RowBytes(DType::kFloat32, part.columns());
    }
  }
  if (call.reply_bytes > limits.reply_bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("the reply would have ", call.reply_bytes, " bytes of rows, at most ",
                     limits.reply_bytes_max, ": ask for fewer at a time"));
  }
  return call;
}

absl::Status Attach(RequestMemory memory, LookupCall& call) {
  EMBLA_ASSIGN_OR_RETURN(LookupCursors cursors, LookupCursors::Over(memory));
  for (std::size_t i = 0; i < call.batch.parts.size(); ++i) {
    EMBLA_RETURN_IF_ERROR(cursors.Take(i, call.batch.parts[i]));
  }
  EMBLA_RETURN_IF_ERROR(cursors.CheckEmpty());
  call.batch.memory = std::move(memory).Release();
  return absl::OkStatus();
}

// The arrays of an update's parts.
struct UpdateCursors {
  PayloadCursor<RowId> ids;
  PayloadCursor<std::uint32_t> lengths;
  PayloadCursor<float> weights;
  PayloadCursor<float> row_sum_squares;
  PayloadCursor<std::byte> gradients;

  static absl::StatusOr<UpdateCursors> Over(const RequestMemory& memory) {
    using Request = v1::UpdateRequest;
    EMBLA_ASSIGN_OR_RETURN(auto ids,
                           PayloadCursor<RowId>::Over(memory, Request::kIdsFieldNumber, "ids"));
    EMBLA_ASSIGN_OR_RETURN(auto lengths, PayloadCursor<std::uint32_t>::Over(
                                             memory, Request::kLengthsFieldNumber, "lengths"));
    EMBLA_ASSIGN_OR_RETURN(
        auto weights, PayloadCursor<float>::Over(memory, Request::kWeightsFieldNumber, "weights"));
    EMBLA_ASSIGN_OR_RETURN(
        auto sums,
        PayloadCursor<float>::Over(memory, Request::kRowSumSquaresFieldNumber, "row_sum_squares"));
    EMBLA_ASSIGN_OR_RETURN(
        auto gradients,
        PayloadCursor<std::byte>::Over(memory, Request::kGradientsFieldNumber, "gradients"));
    return UpdateCursors{ids, lengths, weights, sums, gradients};
  }

  // Sizes are known.
  absl::Status Take(std::size_t i, DType dtype, UpdatePart& part) {
    EMBLA_ASSIGN_OR_RETURN(part.ids, ids.Take(i, part.ids.size()));
    EMBLA_ASSIGN_OR_RETURN(part.lengths, lengths.Take(i, part.lengths.size()));
    EMBLA_ASSIGN_OR_RETURN(part.weights, weights.Take(i, part.weights.size()));
    EMBLA_ASSIGN_OR_RETURN(part.row_sum_squares,
                           row_sum_squares.Take(i, part.row_sum_squares.size()));
    const std::uint64_t gradient_bytes = part.gradient_rows() * part.row_bytes(dtype);
    EMBLA_ASSIGN_OR_RETURN(part.gradients, gradients.Take(i, gradient_bytes));
    if (part.form != UpdatePart::Form::kBags) return absl::OkStatus();
    return CheckLengths(i, part.lengths, part.ids.size());
  }

  absl::Status CheckEmpty() const {
    EMBLA_RETURN_IF_ERROR(ids.CheckEmpty());
    EMBLA_RETURN_IF_ERROR(lengths.CheckEmpty());
    EMBLA_RETURN_IF_ERROR(weights.CheckEmpty());
    EMBLA_RETURN_IF_ERROR(row_sum_squares.CheckEmpty());
    return gradients.CheckEmpty();
  }
};

absl::Status CheckImagesPart(std::size_t i, const v1::UpdatePart& from, DType wire_dtype) {
  const bool has_pooling =
      from.pooling() != v1::POOLING_UNSPECIFIED && from.pooling() != v1::POOLING_NONE;
  if (from.bags_count() != 0 || from.weighted() || has_pooling || from.clipped() ||
      from.has_row_sum_squares() || from.has_learning_rate()) {
    return PartError(i,
                     "bags, weights, pooling, clipped, row_sum_squares or learning_rate with "
                     "form 3 (images)");
  }
  if (wire_dtype != DType::kFloat32) {
    return PartError(
        i, absl::StrCat("images are fp32, but wire_dtype is ", static_cast<int>(wire_dtype)));
  }
  if (from.state_floats() > kRowBlockStateFloatsMax) {
    return PartError(i, absl::StrCat("state_floats is ", from.state_floats(), ", at most ",
                                     kRowBlockStateFloatsMax));
  }
  if (from.state_only() && from.state_floats() == 0) {
    return PartError(i, "an image of neither weights nor state");
  }
  return absl::OkStatus();
}

absl::Status CheckUpdatePart(std::size_t i, const v1::UpdatePart& from, DType wire_dtype) {
  EMBLA_RETURN_IF_ERROR(CheckShape(i, from));
  if (from.form() == v1::GRADIENT_FORM_IMAGES) return CheckImagesPart(i, from, wire_dtype);
  if (from.state_floats() != 0 || from.state_only()) {
    return PartError(i, "state_floats or state_only without form 3 (images)");
  }
  if (const float rate = from.learning_rate(); !(rate >= 0 && std::isfinite(rate))) {
    return PartError(i, absl::StrCat("learning_rate is ", rate, ", not finite and at least 0"));
  }
  if (from.form() == v1::GRADIENT_FORM_ROWS) {
    if (from.bags_count() != 0) return PartError(i, "bags_count with form 1 (rows)");
    if (from.weighted()) return PartError(i, "weights with form 1 (rows)");
    if (from.pooling() != v1::POOLING_UNSPECIFIED && from.pooling() != v1::POOLING_NONE) {
      return PartError(i, "pooling with form 1 (rows)");
    }
    return absl::OkStatus();
  }
  if (from.form() != v1::GRADIENT_FORM_BAGS) {
    return PartError(i, absl::StrCat("form is ", static_cast<int>(from.form()),
                                     ", not 1 (rows), 2 (bags) or 3 (images)"));
  }
  if (from.pooling() != v1::POOLING_SUM && from.pooling() != v1::POOLING_MEAN) {
    return PartError(i, absl::StrCat("pooling is ", static_cast<int>(from.pooling()),
                                     ", not 2 (sum) or 3 (mean)"));
  }
  if (from.weighted() && from.pooling() != v1::POOLING_SUM) {
    return PartError(i, "weights go with pooling 2 (sum) only");
  }
  if (from.has_row_sum_squares()) return PartError(i, "row_sum_squares with form 2 (bags)");
  return absl::OkStatus();
}

absl::StatusOr<StepClaim> ToClaim(const v1::StepClaim& message) {
  if (message.table_id() == 0) return absl::InvalidArgumentError("claim: table_id is 0");
  if (message.units_size() == 0 || message.units_size() > kClaimRunsMax) {
    return absl::InvalidArgumentError(absl::StrCat("claim: it has ", message.units_size(),
                                                   " runs of units, not 1 to ", kClaimRunsMax));
  }
  StepClaim claim{.table = TableId{message.table_id()},
                  .rank = Rank{message.rank()},
                  .resumes = message.resumes(),
                  .units = {}};
  for (const v1::UnitRun& run : message.units()) {
    if (run.granule_begin() >= run.granule_end() || run.granule_end() > kRowGranulesMax ||
        run.column_granule() >= kDimMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("claim: row granules [", run.granule_begin(), ", ", run.granule_end(),
                       ") of column granule ", run.column_granule(), " are no units"));
    }
    claim.units.Include(
        UnitSet(UnitSet::Run{run.column_granule(), run.granule_begin(), run.granule_end()}));
  }
  return claim;
}

// A contribution has to be more than an update.
absl::Status CheckContribution(const StepClaim& claim, std::size_t i, const v1::UpdatePart& part) {
  if (part.table_id() != ToInt(claim.table)) {
    return PartError(i, absl::StrCat("it is of table ", part.table_id(), ", the claim of table ",
                                     ToInt(claim.table)));
  }
  if (part.form() != v1::GRADIENT_FORM_ROWS || !part.clipped() || part.has_row_sum_squares()) {
    return PartError(i,
                     "a contribution to a synchronous step has form 1 (rows), is clipped, and has "
                     "no row_sum_squares");
  }
  return absl::OkStatus();
}

absl::StatusOr<UpdateBatch> UpdateHeader(const v1::UpdateRequest& small) {
  if (small.session() == 0) return absl::InvalidArgumentError("session is 0: open one first");
  if (small.seq() == 0) return absl::InvalidArgumentError("seq is 0: it counts from 1");
  if (small.first_incomplete() > small.seq()) {
    return absl::InvalidArgumentError(
        absl::StrCat("first_incomplete ", small.first_incomplete(), " is after seq ", small.seq()));
  }
  UpdateBatch batch;
  batch.plan_version = PlanVersion{small.plan_version()};
  batch.session = SessionId{small.session()};
  EMBLA_ASSIGN_OR_RETURN(batch.proof, ProofFrom(small.session_proof()));
  batch.seq = UpdateSeq{small.seq()};
  batch.routed_since = PlanVersion{small.routed_since()};
  batch.first_incomplete = UpdateSeq{small.first_incomplete()};
  batch.step = small.step();
  batch.trace = TraceContext::Parse(small.traceparent());
  EMBLA_ASSIGN_OR_RETURN(batch.wire_dtype, ToDType(small.wire_dtype()));
  if (small.has_claim()) {
    EMBLA_ASSIGN_OR_RETURN(batch.claim, ToClaim(small.claim()));
  }
  return batch;
}

absl::StatusOr<UpdateBatch> ToCall(const v1::UpdateRequest& small, const RequestLimits& limits) {
  EMBLA_RETURN_IF_ERROR(CheckCounts(small.parts(), limits));
  EMBLA_ASSIGN_OR_RETURN(UpdateBatch batch, UpdateHeader(small));
  batch.parts.resize(static_cast<std::size_t>(small.parts_size()));
  for (std::size_t i = 0; i < batch.parts.size(); ++i) {
    const v1::UpdatePart& from = small.parts(static_cast<int>(i));
    EMBLA_RETURN_IF_ERROR(CheckUpdatePart(i, from, batch.wire_dtype));
    if (batch.claim.has_value()) {
      EMBLA_RETURN_IF_ERROR(CheckContribution(*batch.claim, i, from));
    }
    UpdatePart& part = batch.parts[i];
    part.table = TableId{from.table_id()};
    part.replica_group = from.replica_group();
    part.form = static_cast<UpdatePart::Form>(from.form());
    part.pooling =
        part.form == UpdatePart::Form::kBags ? static_cast<Pooling>(from.pooling()) : Pooling::kSum;
    part.column_begin = from.column_begin();
    part.column_end = from.column_end();
    part.clipped = from.clipped();
    part.ttl_steps = from.ttl_steps();
    if (from.has_learning_rate()) part.learning_rate = from.learning_rate();
    part.state_floats = from.state_floats();
    part.state_only = from.state_only();
    part.ids = Sized<RowId>(from.ids_count());
    part.lengths = Sized<std::uint32_t>(from.bags_count());
    part.weights = Sized<float>(from.weighted() ? from.ids_count() : 0);
    part.row_sum_squares = Sized<float>(from.has_row_sum_squares() ? from.ids_count() : 0);
  }
  return batch;
}

absl::Status Attach(RequestMemory memory, UpdateBatch& batch) {
  EMBLA_ASSIGN_OR_RETURN(UpdateCursors cursors, UpdateCursors::Over(memory));
  for (std::size_t i = 0; i < batch.parts.size(); ++i) {
    EMBLA_RETURN_IF_ERROR(cursors.Take(i, batch.wire_dtype, batch.parts[i]));
  }
  EMBLA_RETURN_IF_ERROR(cursors.CheckEmpty());
  batch.memory = std::move(memory).Release();
  return absl::OkStatus();
}

template <typename Message>
absl::StatusOr<RequestMemory> Decode(grpc::ByteBuffer& bytes, BufferPool& pool,
                                     std::span<const int> large_numbers,
                                     const RequestLimits& limits, Message& small,
                                     const FieldFilled& filled = nullptr) {
  RequestMemory memory(pool, std::min(bytes.Length(), limits.request_bytes_max));
  const PlaceField place = [&memory](int number, std::size_t size) {
    return memory.Place(number, size);
  };
  EMBLA_RETURN_IF_ERROR(
      DecodeMessage(bytes, large_numbers, place, detail::LimitsFor(limits), small, filled));
  return memory;
}

StreamRequest Begin(const v1::StreamRequest& envelope) {
  return {.sequence = envelope.sequence(),
          .deadline_ms = envelope.deadline_ms(),
          .asks_data_socket = envelope.asks_data_socket(),
          .reserve = {.bytes = envelope.reserve_bytes(), .ids = envelope.reserve_ids()},
          .call = absl::InvalidArgumentError("neither lookup nor update is set")};
}

// Requires: request.call.ok(), and room is asked for.
absl::Status CheckReservation(const StreamRequest& request, const RequestLimits& limits) {
  if (request.is_update || !std::get<LookupCall>(*request.call).batch.parts.empty()) {
    return absl::InvalidArgumentError("room is asked for beside a lookup without parts only");
  }
  const Reservation& reserve = request.reserve;
  if (reserve.bytes <= limits.request_bytes_max && reserve.ids <= limits.ids_max) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "room is asked for an update of ", reserve.bytes, " bytes and ", reserve.ids,
      " ids, at most ", limits.request_bytes_max, " and ", limits.ids_max, " allowed"));
}

template <typename Call>
void Fill(StreamRequest& request, absl::StatusOr<Call> call, const RequestLimits& limits) {
  request.is_update = std::is_same_v<Call, UpdateBatch>;
  if (call.ok()) {
    request.call = *std::move(call);
    if (request.reserve.bytes == 0) return;
    if (absl::Status status = CheckReservation(request, limits); !status.ok()) {
      request.call = std::move(status);
    }
  } else {
    request.call = call.status();
  }
}

}  // namespace

namespace detail {

absl::StatusOr<UpdateBatch> ToCall(const v1::UpdateRequest& small, const RequestLimits& limits) {
  return embla::wire::ToCall(small, limits);
}

absl::StatusOr<UpdateBatch> ToCall(const v1::UpdateRequest& small, RequestMemory memory,
                                   const RequestLimits& limits) {
  EMBLA_ASSIGN_OR_RETURN(UpdateBatch batch, ToCall(small, limits));
  EMBLA_RETURN_IF_ERROR(Attach(std::move(memory), batch));
  return batch;
}

DecodeLimits LimitsFor(const RequestLimits& limits) {
  // A part takes at most about 80 bytes and 16 fields.
  return {.large_bytes_max = limits.request_bytes_max,
          .small_bytes_max = std::size_t{limits.parts_max} * 96 + 4096,
          .small_fields_max = std::size_t{limits.parts_max} * 32 + 1024};
}

}  // namespace detail

absl::StatusOr<LookupCall> DecodeLookupRequest(grpc::ByteBuffer& bytes, BufferPool& pool,
                                               const RequestLimits& limits) {
  v1::LookupRequest small;
  EMBLA_ASSIGN_OR_RETURN(RequestMemory memory, Decode(bytes, pool, kLookupLarge, limits, small));
  EMBLA_ASSIGN_OR_RETURN(LookupCall call, ToCall(small, limits));
  EMBLA_RETURN_IF_ERROR(Attach(std::move(memory), call));
  return call;
}

absl::StatusOr<UpdateBatch> DecodeUpdateRequest(grpc::ByteBuffer& bytes, BufferPool& pool,
                                                const RequestLimits& limits,
                                                const FieldFilled& filled) {
  v1::UpdateRequest small;
  EMBLA_ASSIGN_OR_RETURN(RequestMemory memory,
                         Decode(bytes, pool, detail::kUpdateLarge, limits, small, filled));
  return detail::ToCall(small, std::move(memory), limits);
}

absl::StatusOr<StreamRequest> DecodeStreamRequest(grpc::ByteBuffer& bytes, BufferPool& pool,
                                                  const RequestLimits& limits,
                                                  const FieldFilled& filled) {
  MessageArena arena;
  auto& lookup = arena.Make<v1::LookupRequest>();
  auto& update = arena.Make<v1::UpdateRequest>();
  const NestedMessage calls[] = {
      {v1::StreamRequest::kLookupFieldNumber, kLookupLarge, &lookup},
      {v1::StreamRequest::kUpdateFieldNumber, detail::kUpdateLarge, &update},
  };
  RequestMemory memory(pool, std::min(bytes.Length(), limits.request_bytes_max));
  const PlaceField place = [&memory](int number, std::size_t size) {
    return memory.Place(number, size);
  };
  v1::StreamRequest envelope;
  EMBLA_ASSIGN_OR_RETURN(
      const int number,
      DecodeNested(bytes, calls, place, detail::LimitsFor(limits), envelope, filled));
  StreamRequest request = Begin(envelope);
  if (number == v1::StreamRequest::kLookupFieldNumber) {
    Fill(request, ToCall(lookup, limits), limits);
  } else if (number == v1::StreamRequest::kUpdateFieldNumber) {
    Fill(request, ToCall(update, limits), limits);
  }
  if (request.call.ok()) {
    if (absl::Status status = AttachArrays(std::move(memory), *request.call); !status.ok()) {
      request.call = std::move(status);
    }
  }
  return request;
}

std::size_t TextBytesMax(const RequestLimits& limits) {
  return detail::LimitsFor(limits).small_bytes_max;
}

absl::StatusOr<StreamRequest> DecodeStreamText(std::string_view text, const RequestLimits& limits) {
  MessageArena arena;
  auto& message = arena.Make<v1::StreamRequest>();
  EMBLA_RETURN_IF_ERROR(DecodeText(text, detail::LimitsFor(limits), message));
  StreamRequest request = Begin(message);
  if (message.has_lookup()) {
    Fill(request, ToCall(message.lookup(), limits), limits);
  } else if (message.has_update()) {
    Fill(request, ToCall(message.update(), limits), limits);
  }
  return request;
}

bool IsArray(bool is_update, int number) {
  const auto contains = [number](const auto& numbers) {
    return std::find(std::begin(numbers), std::end(numbers), number) != std::end(numbers);
  };
  return is_update ? contains(detail::kUpdateLarge) : contains(kLookupLarge);
}

absl::Status AttachArrays(RequestMemory memory, std::variant<LookupCall, UpdateBatch>& call) {
  return std::visit([&memory](auto& each) { return Attach(std::move(memory), each); }, call);
}

absl::Status AttachArrays(RequestMemory memory, UpdateBatch& batch) {
  return Attach(std::move(memory), batch);
}

}  // namespace embla::wire
