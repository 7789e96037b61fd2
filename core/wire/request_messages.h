// Update requests between their message, their payload and their batch: for messages that hold one.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "core/rows/request.h"
#include "core/wire/large_fields.h"
#include "core/wire/message_arena.h"
#include "core/wire/request_codec.h"
#include "core/wire/request_memory.h"
#include "embla/v1/data.pb.h"

namespace embla::wire::detail {

inline constexpr int kUpdateLarge[] = {
    v1::UpdateRequest::kIdsFieldNumber, v1::UpdateRequest::kLengthsFieldNumber,
    v1::UpdateRequest::kWeightsFieldNumber, v1::UpdateRequest::kRowSumSquaresFieldNumber,
    v1::UpdateRequest::kGradientsFieldNumber};

// Everything but the payload.
const v1::UpdateRequest& SmallPart(const UpdateBatch& batch, MessageArena& arena);
std::vector<LargeField> LargeFields(const UpdatePayload& payload);

// Checks the message. Spans of the batch have sizes, and no data: see AttachArrays.
absl::StatusOr<UpdateBatch> ToCall(const v1::UpdateRequest& small, const RequestLimits& limits);
// Checks and joins them again. `memory` holds the fields of kUpdateLarge.
absl::StatusOr<UpdateBatch> ToCall(const v1::UpdateRequest& small, RequestMemory memory,
                                   const RequestLimits& limits);

DecodeLimits LimitsFor(const RequestLimits& limits);

}  // namespace embla::wire::detail
