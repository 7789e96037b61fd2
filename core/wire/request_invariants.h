// Test support: what must hold of every batch that the decoders let through, and requests as
// frames.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/wire/frame.h"
#include "core/wire/request_codec.h"
#include "core/wire/request_memory.h"
#include "embla/v1/data.pb.h"

namespace embla::wire {

inline std::uint64_t Sum(std::span<const std::uint32_t> lengths) {
  std::uint64_t sum = 0;
  for (const std::uint32_t length : lengths) sum += length;
  return sum;
}

inline bool Inside(const SharedBuffer& memory, const void* data, std::size_t size) {
  const auto* begin = static_cast<const std::byte*>(data);
  return size == 0 || (begin >= memory.data() && begin + size <= memory.data() + memory.size());
}

inline void CheckInvariants(const LookupCall& call) {
  std::size_t reply_bytes = 0;
  for (const LookupPart& part : call.batch.parts) {
    EMBLA_CHECK(part.column_begin < part.column_end && part.column_end <= kDimMax);
    EMBLA_CHECK(Inside(call.batch.memory, part.ids.data(), part.ids.size_bytes()));
    EMBLA_CHECK(Inside(call.batch.memory, part.lengths.data(), part.lengths.size_bytes()));
    EMBLA_CHECK(Inside(call.batch.memory, part.weights.data(), part.weights.size_bytes()));
    EMBLA_CHECK(part.weights.empty() || part.weights.size() == part.ids.size());
    EMBLA_CHECK(part.pooling == Pooling::kNone ? part.lengths.empty()
                                               : Sum(part.lengths) == part.ids.size());
    reply_bytes += part.output_rows() * RowBytes(call.batch.wire_dtype, part.columns());
  }
  EMBLA_CHECK(reply_bytes == call.reply_bytes);
}

inline void CheckInvariants(const UpdateBatch& batch) {
  EMBLA_CHECK(ToInt(batch.session) != 0 && ToInt(batch.seq) != 0);
  EMBLA_CHECK(!batch.claim.has_value() || !batch.claim->units.empty());
  for (const UpdatePart& part : batch.parts) {
    EMBLA_CHECK(!batch.claim.has_value() ||
                (part.table == batch.claim->table && part.clipped &&
                 part.form == UpdatePart::Form::kRows && part.row_sum_squares.empty()));
    EMBLA_CHECK(part.column_begin < part.column_end && part.column_end <= kDimMax);
    EMBLA_CHECK(Inside(batch.memory, part.ids.data(), part.ids.size_bytes()));
    EMBLA_CHECK(Inside(batch.memory, part.gradients.data(), part.gradients.size()));
    EMBLA_CHECK(part.gradients.size() == part.gradient_rows() * part.row_bytes(batch.wire_dtype));
    EMBLA_CHECK(part.form == UpdatePart::Form::kBags ? Sum(part.lengths) == part.ids.size()
                                                     : part.lengths.empty());
    EMBLA_CHECK(!part.learning_rate.has_value() ||
                (!part.is_images() && std::isfinite(*part.learning_rate)));
    EMBLA_CHECK(part.is_images() || part.state_floats == 0);
    EMBLA_CHECK(part.row_sum_squares.empty() || part.row_sum_squares.size() == part.ids.size());
  }
}

// `request` with its arrays beside its text. Requires: it has a call.
inline SplitMessage SplitOf(v1::StreamRequest request) {
  const bool is_update = request.has_update();
  const int number =
      is_update ? v1::StreamRequest::kUpdateFieldNumber : v1::StreamRequest::kLookupFieldNumber;
  google::protobuf::Message& call =
      is_update ? static_cast<google::protobuf::Message&>(*request.mutable_update())
                : *request.mutable_lookup();
  const google::protobuf::Reflection& reflection = *call.GetReflection();
  std::vector<LargeField> arrays;
  for (int i = 0; i < call.GetDescriptor()->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* const field = call.GetDescriptor()->field(i);
    if (!IsArray(is_update, field->number())) continue;
    arrays.emplace_back(field->number(), grpc::Slice(reflection.GetString(call, field)));
    reflection.ClearField(&call, field);
  }
  v1::StreamRequest envelope = request;
  envelope.clear_call();
  return Split(envelope, number, call, std::move(arrays));
}

inline std::string BytesOf(const Frame& frame) {
  std::string bytes = frame.head;
  for (const grpc::Slice& array : frame.pieces) {
    bytes.append(reinterpret_cast<const char*>(array.begin()), array.size());
  }
  return bytes;
}

// Decodes the requests of frames as a node does: the text first, then the arrays.
class FramedRequests final : public FrameReader::Sink {
 public:
  // `pool` is not owned and outlives this object.
  FramedRequests(BufferPool& pool, const RequestLimits& limits) : pool_(pool), limits_(limits) {}

  // Requests whose frames have come, in their order.
  std::vector<StreamRequest>& requests() { return requests_; }

  absl::Status BeginFrame(std::string_view text, std::span<const FrameArray> arrays,
                          std::span<std::byte*> places) override {
    EMBLA_CHECK(text.size() <= TextBytesMax(limits_));
    EMBLA_CHECK(arrays.size() <= kFrameArraysMax && places.size() == arrays.size());
    EMBLA_CHECK(!request_.has_value());
    EMBLA_ASSIGN_OR_RETURN(request_, DecodeStreamText(text, limits_));
    std::size_t bytes = 0;
    for (const FrameArray& array : arrays) bytes += array.bytes;
    if (bytes > limits_.request_bytes_max) request_->call = absl::InvalidArgumentError("too long");
    if (!request_->call.ok()) return absl::OkStatus();
    memory_.emplace(pool_, bytes);
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const auto number = static_cast<int>(arrays[i].number);
      if (!IsArray(request_->is_update, number)) continue;
      EMBLA_ASSIGN_OR_RETURN(places[i], memory_->Place(number, arrays[i].bytes));
    }
    return absl::OkStatus();
  }

  absl::Status EndFrame() override {
    StreamRequest request = *std::exchange(request_, std::nullopt);
    if (request.call.ok()) {
      const absl::Status attached = AttachArrays(*std::move(memory_), *request.call);
      if (!attached.ok()) request.call = attached;
    }
    if (request.call.ok()) {
      std::visit([](const auto& call) { CheckInvariants(call); }, *request.call);
    }
    requests_.push_back(std::move(request));
    return absl::OkStatus();
  }

 private:
  BufferPool& pool_;
  const RequestLimits limits_;
  std::optional<StreamRequest> request_;
  std::optional<RequestMemory> memory_;
  std::vector<StreamRequest> requests_;
};

// Decodes `bytes` as the frames of a connection, up to the first error. They come in pieces, which
// are the slices.
inline std::vector<StreamRequest> DecodeFrames(const grpc::ByteBuffer& bytes, BufferPool& pool,
                                               const RequestLimits& limits) {
  constexpr std::size_t kPlacedBytesMin = 16;  // Shorter pieces are taken.
  FramedRequests frames(pool, limits);
  FrameReader reader(frames, TextBytesMax(limits));
  std::vector<grpc::Slice> slices;
  (void)bytes.Dump(&slices);
  for (const grpc::Slice& slice : slices) {
    std::span<const std::byte> piece(reinterpret_cast<const std::byte*>(slice.begin()),
                                     slice.size());
    while (!piece.empty()) {
      const std::span<std::byte> place = reader.Place();
      std::size_t count = std::min(place.size(), piece.size());
      if (count >= kPlacedBytesMin) {
        std::memcpy(place.data(), piece.data(), count);
        if (!reader.Placed(count).ok()) return std::move(frames.requests());
      } else {
        const absl::StatusOr<std::size_t> taken = reader.Take(piece);
        if (!taken.ok()) return std::move(frames.requests());
        EMBLA_CHECK(*taken > 0 && *taken <= piece.size());
        count = *taken;
      }
      piece = piece.subspan(count);
    }
  }
  return std::move(frames.requests());
}

// Limits that are far below a node's, and let all requests of RandomRequest through.
inline RequestLimits SmallLimits() {
  return {
      .request_bytes_max = 64 << 10, .reply_bytes_max = 64 << 10, .parts_max = 64, .ids_max = 4096};
}

// Decodes `bytes` as each kind of request, and as frames; returns how many requests were accepted.
inline int DecodeEveryWay(grpc::ByteBuffer bytes, BufferPool& pool) {
  const RequestLimits limits;
  int accepted = 0;
  if (const auto call = DecodeLookupRequest(bytes, pool, limits); call.ok()) {
    CheckInvariants(*call);
    ++accepted;
  }
  if (const auto call = DecodeUpdateRequest(bytes, pool, limits); call.ok()) {
    CheckInvariants(*call);
    ++accepted;
  }
  if (const auto request = DecodeStreamRequest(bytes, pool, limits);
      request.ok() && request->call.ok()) {
    std::visit([](const auto& call) { CheckInvariants(call); }, *request->call);
    ++accepted;
  }
  for (const StreamRequest& request : DecodeFrames(bytes, pool, SmallLimits())) {
    accepted += request.call.ok() ? 1 : 0;
  }
  return accepted;
}

}  // namespace embla::wire
