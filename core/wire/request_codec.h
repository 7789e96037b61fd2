// Lookup and update batches <-> request messages (proto/embla/v1/data.proto), alone and inside
// StreamRequest.
//
// Decoding checks everything that can be known without the plan: counts against payload sizes, bag
// lengths that sum to the ids, column ranges, enums, limits. Decoded batches may be trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <variant>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/rows/request.h"
#include "core/wire/large_fields.h"
#include "core/wire/request_memory.h"

namespace embla::wire {

struct RequestLimits {
  // Bytes of the message, all payloads included.
  std::size_t request_bytes_max = std::size_t{256} << 20;
  std::size_t reply_bytes_max = std::size_t{256} << 20;  // Bytes of the rows a lookup asks for.
  std::uint32_t parts_max = 4096;
  std::uint64_t ids_max = std::uint64_t{16} << 20;
};

// --- Encoding: what a client does.

// The arrays of all parts, one after the other. Slices are shared by reference: encoding the same
// payload again, for a retry, copies nothing. Make one from a Buffer with SliceOf.
struct LookupPayload {
  grpc::Slice ids;      // int64[]
  grpc::Slice lengths;  // uint32[], of pooled parts
  grpc::Slice weights;  // fp32[], of weighted parts
};
struct UpdatePayload {
  grpc::Slice ids;
  grpc::Slice lengths;          // Lengths of the kBags parts.
  grpc::Slice weights;          // Weights of the weighted parts.
  grpc::Slice row_sum_squares;  // fp32[], of the parts that have them
  // Gradient rows in the batch's wire dtype: pieces, one after the other.
  std::vector<grpc::Slice> gradients;
};

// Copies the arrays of the parts.
LookupPayload GatherPayload(const LookupBatch& batch);
// Shares the batch's memory where arrays lie one after the other, as those of a decoded message do.
// Others are copied, and all if the batch does not keep its memory.
UpdatePayload GatherPayload(const UpdateBatch& batch);

// Reads only the sizes of the batch's parts, so their spans need not point into the payload.
grpc::ByteBuffer EncodeLookupRequest(const LookupBatch& batch, const LookupPayload& payload);
grpc::ByteBuffer EncodeUpdateRequest(const UpdateBatch& batch, const UpdatePayload& payload);

// Room that is asked for before an update is sent.
struct Reservation {
  std::uint64_t bytes = 0;  // The update's message; 0: nothing is asked for.
  std::uint64_t ids = 0;    // In all its parts.
};

struct StreamCall {
  std::uint64_t sequence = 0;
  std::uint32_t deadline_ms = 0;  // Time the server has; 0: the server's own maximum.
  bool asks_data_socket = false;  // For an offer to go on by a data socket.
  Reservation reserve = {};
};
// frame_bytes_max 0 asks for the reply in one piece.
SplitMessage EncodeStreamLookup(const StreamCall& call, const LookupBatch& batch,
                                const LookupPayload& payload, std::uint32_t frame_bytes_max);
SplitMessage EncodeStreamUpdate(const StreamCall& call, const UpdateBatch& batch,
                                const UpdatePayload& payload);

// --- Decoding: what a server does. Errors: InvalidArgument names the field, part and numbers.

struct LookupCall {
  LookupBatch batch;
  std::uint32_t frame_bytes_max = 0;  // 0, or kFrameBytesMin and more.
  std::size_t reply_bytes = 0;        // Bytes of the rows asked for.
  // Bytes of the fp32 rows that a node may have to gather before it converts them.
  std::size_t staged_bytes = 0;
};
inline LookupBatch& BatchOf(LookupCall& call) { return call.batch; }
inline UpdateBatch& BatchOf(UpdateBatch& batch) { return batch; }
inline constexpr std::uint32_t kFrameBytesMin = 64 << 10;

absl::StatusOr<LookupCall> DecodeLookupRequest(grpc::ByteBuffer& bytes, BufferPool& pool,
                                               const RequestLimits& limits);
absl::StatusOr<UpdateBatch> DecodeUpdateRequest(grpc::ByteBuffer& bytes, BufferPool& pool,
                                                const RequestLimits& limits,
                                                const FieldFilled& filled = nullptr);

// An error in `call` is answered under `sequence`; an error of DecodeStreamRequest itself means
// that there is no sequence to answer, and ends the stream.
struct StreamRequest {
  std::uint64_t sequence = 0;
  std::uint32_t deadline_ms = 0;
  bool asks_data_socket = false;
  Reservation reserve = {};  // Beside a lookup without parts.
  bool is_update = false;    // Else a lookup, or neither.
  absl::StatusOr<std::variant<LookupCall, UpdateBatch>> call;
};
absl::StatusOr<StreamRequest> DecodeStreamRequest(grpc::ByteBuffer& bytes, BufferPool& pool,
                                                  const RequestLimits& limits,
                                                  const FieldFilled& filled = nullptr);

// A request whose arrays come after its text (core/wire/frame.h), in two steps. After the first one
// all is known but the arrays: the batch's spans have sizes, and no data.
std::size_t TextBytesMax(const RequestLimits& limits);
absl::StatusOr<StreamRequest> DecodeStreamText(std::string_view text, const RequestLimits& limits);
// Whether field `number` of a request of this kind is an array.
bool IsArray(bool is_update, int number);
// The second step, with `memory` that holds the arrays, and is the batch's. After an error the call
// is of no use.
absl::Status AttachArrays(RequestMemory memory, std::variant<LookupCall, UpdateBatch>& call);
absl::Status AttachArrays(RequestMemory memory, UpdateBatch& batch);

}  // namespace embla::wire
