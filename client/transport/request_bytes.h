// Data requests as messages. The arrays are sent without copying.
//
// A node ends a connection that sends much before it has shown a session. So before a long message
// that may be a connection's first goes a lookup without parts, which shows the session and is
// answered by nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include <grpcpp/support/byte_buffer.h>

#include "client/route/node_request.h"
#include "client/transport/data_request.h"
#include "core/wire/large_fields.h"
#include "core/wire/request_codec.h"

namespace embla::client {

// Longer messages are not a connection's first. A node takes 16 MiB.
inline constexpr std::size_t kFirstMessageBytesMax = std::size_t{1} << 20;

inline wire::LookupPayload PayloadOf(NodeLookup& request) {
  return {.ids = wire::SliceOf(std::move(request.ids)),
          .lengths = wire::SliceOf(std::move(request.lengths)),
          .weights = wire::SliceOf(std::move(request.weights))};
}

// Borrowed pieces are good for as long as DataRequest says.
inline std::vector<grpc::Slice> GradientsOf(NodeUpdate& request) {
  if (request.borrowed_bytes == 0) return {wire::SliceOf(std::move(request.gradients))};
  const std::span<const std::byte> own = request.gradients.bytes();
  const auto memory = std::make_shared<const Buffer>(std::move(request.gradients));
  std::vector<grpc::Slice> pieces;
  pieces.reserve(request.batch.parts.size());
  for (const UpdatePart& part : request.batch.parts) {
    const std::span<const std::byte> rows = part.gradients;
    if (rows.empty()) continue;
    const bool is_own = std::less_equal<>()(own.data(), rows.data()) &&
                        std::less<>()(rows.data(), own.data() + own.size());
    pieces.push_back(is_own ? wire::SliceOf(rows, memory)
                            : grpc::Slice(rows.data(), rows.size(), grpc::Slice::STATIC_SLICE));
  }
  return pieces;
}

inline wire::UpdatePayload PayloadOf(NodeUpdate& request) {
  return {.ids = wire::SliceOf(std::move(request.ids)),
          .lengths = wire::SliceOf(std::move(request.lengths)),
          .weights = wire::SliceOf(std::move(request.weights)),
          .row_sum_squares = wire::SliceOf(std::move(request.row_sum_squares)),
          .gradients = GradientsOf(request)};
}

// A lookup that shows the session of `request` and asks for nothing.
inline LookupBatch ShowingLookup(const DataRequest& request) {
  LookupBatch batch;
  std::visit(
      [&batch](const auto& call) {
        batch.plan_version = call.batch.plan_version;
        batch.session = call.batch.session;
        batch.proof = call.batch.proof;
      },
      request.call);
  return batch;
}

}  // namespace embla::client
