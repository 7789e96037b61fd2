// Data requests as messages. The arrays are sent without copying.
#pragma once

#include <cstdint>

#include <grpcpp/support/byte_buffer.h>

#include "client/route/node_request.h"
#include "core/wire/large_fields.h"
#include "core/wire/request_codec.h"

namespace embla::client {

inline wire::LookupPayload PayloadOf(NodeLookup& request) {
  return {.ids = wire::SliceOf(std::move(request.ids)),
          .lengths = wire::SliceOf(std::move(request.lengths)),
          .weights = wire::SliceOf(std::move(request.weights))};
}

inline wire::UpdatePayload PayloadOf(NodeUpdate& request) {
  return {.ids = wire::SliceOf(std::move(request.ids)),
          .lengths = wire::SliceOf(std::move(request.lengths)),
          .weights = wire::SliceOf(std::move(request.weights)),
          .row_sum_squares = wire::SliceOf(std::move(request.row_sum_squares)),
          .gradients = wire::SliceOf(std::move(request.gradients))};
}

}  // namespace embla::client
