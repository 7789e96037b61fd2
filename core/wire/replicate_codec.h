// Messages between the copies of a replicated table (DataService.Replicate).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/base/ids.h"
#include "core/rows/request.h"
#include "core/wire/frame.h"
#include "core/wire/peer_proof.h"
#include "core/wire/request_codec.h"

namespace embla::v1 {
class MoveMessage;
}

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
grpc::ByteBuffer EncodeReplicateUpdate(const ReplicateHead& head, const UpdateBatch& batch,
                                       const UpdatePayload& payload);
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
  UpdateBatch update;          // kUpdate.
  ReplicateSnapshot snapshot;  // kSnapshot.
};
// Errors: InvalidArgument.
absl::StatusOr<ReplicateCall> DecodeReplicateRequest(grpc::ByteBuffer& bytes, BufferPool& pool,
                                                     const RequestLimits& limits);

struct ReplicateAck {
  std::uint64_t order = 0;
  bool need_snapshot = false;
  std::uint64_t life = 0;
  bool gone = false;
  std::uint64_t early_max = 0;
};
grpc::ByteBuffer EncodeReplicateReply(const ReplicateAck& ack);
absl::StatusOr<ReplicateAck> DecodeReplicateReply(grpc::ByteBuffer& bytes);

// --- By a data socket (core/wire/frame.h): updates, and messages of moves, whose arrays come after
// their text.

// Bytes of a text that any node takes: a message of a move has the windows of its unit's sessions.
inline constexpr std::size_t kPeerTextBytesMin = std::size_t{4} << 20;

struct ReplicateOrder {
  std::uint64_t sequence = 0;     // The answer has the same; 0: none is wanted.
  std::uint32_t deadline_ms = 0;  // Time the copy has; 0: its own maximum.
};
Frame EncodeReplicateFrame(const ReplicateOrder& order, const ReplicateHead& head,
                           const UpdateBatch& batch, const UpdatePayload& payload);
// An error in `call` is answered; one of DecodeReplicateText itself ends the connection.
struct ReplicateText {
  ReplicateOrder order;
  std::shared_ptr<const v1::MoveMessage> move;  // Without its rows. Null: it is an update.
  absl::StatusOr<ReplicateCall> call;  // The update's spans have sizes, and no data: AttachArrays.
};
absl::StatusOr<ReplicateText> DecodeReplicateText(std::string_view text,
                                                  const RequestLimits& limits);

struct ReplicateAnswer {
  std::uint64_t sequence = 0;
  absl::StatusOr<ReplicateAck> ack = ReplicateAck();
};
Frame EncodeReplicateAnswer(const ReplicateAnswer& answer);
absl::StatusOr<ReplicateAnswer> DecodeReplicateAnswer(std::string_view text);

}  // namespace embla::wire
