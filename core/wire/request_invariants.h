// Test support: what must hold of every batch that the decoders let through.
#pragma once

#include <cmath>
#include <cstdint>
#include <variant>

#include <grpcpp/support/byte_buffer.h>

#include "core/base/check.h"
#include "core/wire/request_codec.h"

namespace embla::wire {

inline std::uint64_t Sum(std::span<const std::uint32_t> lengths) {
  std::uint64_t sum = 0;
  for (const std::uint32_t length : lengths) sum += length;
  return sum;
}

inline bool Inside(const Buffer& memory, const void* data, std::size_t size) {
  const auto* begin = static_cast<const std::byte*>(data);
  return size == 0 || (begin >= memory.data() && begin + size <= memory.data() + memory.size());
}

inline void CheckInvariants(const LookupCall& call) {
  std::size_t reply_bytes = 0;
  for (const LookupPart& part : call.batch.parts) {
    EMBLA_CHECK(part.column_begin < part.column_end && part.column_end <= kDimMax);
    EMBLA_CHECK(Inside(call.memory, part.ids.data(), part.ids.size_bytes()));
    EMBLA_CHECK(Inside(call.memory, part.lengths.data(), part.lengths.size_bytes()));
    EMBLA_CHECK(Inside(call.memory, part.weights.data(), part.weights.size_bytes()));
    EMBLA_CHECK(part.weights.empty() || part.weights.size() == part.ids.size());
    EMBLA_CHECK(part.pooling == Pooling::kNone ? part.lengths.empty()
                                               : Sum(part.lengths) == part.ids.size());
    reply_bytes += part.output_rows() * RowBytes(call.batch.wire_dtype, part.columns());
  }
  EMBLA_CHECK(reply_bytes == call.reply_bytes);
}

inline void CheckInvariants(const UpdateCall& call) {
  EMBLA_CHECK(ToInt(call.batch.session) != 0 && ToInt(call.batch.seq) != 0);
  EMBLA_CHECK(!call.batch.claim.has_value() || !call.batch.claim->units.empty());
  for (const UpdatePart& part : call.batch.parts) {
    EMBLA_CHECK(!call.batch.claim.has_value() ||
                (part.table == call.batch.claim->table && part.clipped &&
                 part.form == UpdatePart::Form::kRows && part.row_sum_squares.empty()));
    EMBLA_CHECK(part.column_begin < part.column_end && part.column_end <= kDimMax);
    EMBLA_CHECK(Inside(call.memory, part.ids.data(), part.ids.size_bytes()));
    EMBLA_CHECK(Inside(call.memory, part.gradients.data(), part.gradients.size()));
    EMBLA_CHECK(part.gradients.size() ==
                part.gradient_rows() * part.row_bytes(call.batch.wire_dtype));
    EMBLA_CHECK(part.form == UpdatePart::Form::kBags ? Sum(part.lengths) == part.ids.size()
                                                     : part.lengths.empty());
    EMBLA_CHECK(!part.learning_rate.has_value() ||
                (!part.is_images() && std::isfinite(*part.learning_rate)));
    EMBLA_CHECK(part.is_images() || part.state_floats == 0);
    EMBLA_CHECK(part.row_sum_squares.empty() || part.row_sum_squares.size() == part.ids.size());
  }
}

// Decodes `bytes` as each kind of request; returns how many kinds accepted them.
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
  return accepted;
}

}  // namespace embla::wire
