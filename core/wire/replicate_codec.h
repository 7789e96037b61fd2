// Messages between the copies of a replicated table (DataService.Replicate).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/base/ids.h"
#include "core/rows/request.h"
#include "core/wire/peer_proof.h"
#include "core/wire/request_codec.h"

namespace embla::wire {

struct ReplicateHead {
  TableId table{};
  std::uint64_t reign = 0;  // Reign of the primary.
  std::uint64_t order = 0;
  PlanVersion plan_version{};
  PlanVersion term{};
  std::uint64_t life = 0;
  bool serves = false;
  PeerProof peer = {};
};

// The updates of a session that a snapshot's rows contain.
struct ReplicateWindow {
  std::uint64_t session = 0;
  std::uint64_t floor = 0;
  std::array<std::uint64_t, 4> words{};
};

// Neither update nor snapshot: asks only where the replica is.
grpc::ByteBuffer EncodeReplicateProbe(const ReplicateHead& head);
struct ReplicateUpdate {
  const UpdateBatch& batch;  // Views what `payload` has.
  UpdatePayload payload;
};
// One at `head.order`, and those that follow it. Requires: at least one.
grpc::ByteBuffer EncodeReplicateUpdates(const ReplicateHead& head,
                                        std::span<const ReplicateUpdate> updates);
struct ReplicateSnapshot {
  Buffer row_block;
  bool first = false;
  bool last = false;
  std::vector<ReplicateWindow> windows;
};
grpc::ByteBuffer EncodeReplicateSnapshot(const ReplicateHead& head, ReplicateSnapshot snapshot);

struct ReplicateCall {
  enum class Kind : std::uint8_t { kProbe, kUpdate, kSnapshot };

  ReplicateHead head;
  Kind kind = Kind::kProbe;
  std::vector<UpdateCall> updates;  // kUpdate: that at head.order, and those that follow it.
  ReplicateSnapshot snapshot;       // kSnapshot.
};
// Most updates of one request.
inline constexpr std::size_t kReplicateUpdatesMax = 64;
// Errors: InvalidArgument.
absl::StatusOr<ReplicateCall> DecodeReplicateRequest(grpc::ByteBuffer& bytes, BufferPool& pool,
                                                     const RequestLimits& limits);

struct ReplicateAck {
  std::uint64_t order = 0;
  bool need_snapshot = false;
  std::uint64_t life = 0;
  bool gone = false;
  std::uint64_t early_max = 0;
  std::uint64_t updates_max = 0;
};
grpc::ByteBuffer EncodeReplicateReply(const ReplicateAck& ack);
absl::StatusOr<ReplicateAck> DecodeReplicateReply(grpc::ByteBuffer& bytes);

}  // namespace embla::wire
