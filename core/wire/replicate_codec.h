// Messages between the copies of a replicated table (DataService.Replicate).
#pragma once

#include <cstdint>

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/base/ids.h"
#include "core/rows/request.h"
#include "core/wire/request_codec.h"

namespace embla::wire {

struct ReplicateHead {
  TableId table{};
  std::uint64_t incarnation = 0;  // Of the primary.
  std::uint64_t order = 0;
};

// Neither update nor snapshot: asks only where the replica is.
grpc::ByteBuffer EncodeReplicateProbe(const ReplicateHead& head);
grpc::ByteBuffer EncodeReplicateUpdate(const ReplicateHead& head, const UpdateBatch& batch,
                                       const UpdatePayload& payload);
grpc::ByteBuffer EncodeReplicateSnapshot(const ReplicateHead& head, Buffer row_block, bool first,
                                         bool last);

struct ReplicateCall {
  enum class Kind : std::uint8_t { kProbe, kUpdate, kSnapshot };

  ReplicateHead head;
  Kind kind = Kind::kProbe;
  UpdateBatch update;  // kUpdate. Views `memory`.
  Buffer memory;
  Buffer row_block;  // kSnapshot.
  bool first = false;
  bool last = false;
};
// Errors: InvalidArgument.
absl::StatusOr<ReplicateCall> DecodeReplicateRequest(grpc::ByteBuffer& bytes, BufferPool& pool,
                                                     const RequestLimits& limits);

struct ReplicateAck {
  std::uint64_t order = 0;
  bool need_snapshot = false;
};
grpc::ByteBuffer EncodeReplicateReply(const ReplicateAck& ack);
absl::StatusOr<ReplicateAck> DecodeReplicateReply(grpc::ByteBuffer& bytes);

}  // namespace embla::wire
