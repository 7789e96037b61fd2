// Orders, reports and peers' messages of moves <-> their protobuf messages. Decoded messages may be
// trusted in themselves; the protocol (server/migration) checks whether they fit the unit.
#pragma once

#include <span>
#include <vector>

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/wire/frame.h"
#include "core/wire/peer_proof.h"
#include "core/wire/request_codec.h"
#include "embla/v1/coordinator.pb.h"
#include "embla/v1/data.pb.h"
#include "server/migration/move_orders.h"
#include "server/mover/move_transport.h"

namespace embla {

v1::MoveOrders ToMessage(std::span<const UnitOrder> orders);
// InvalidArgument names the order.
absl::StatusOr<std::vector<UnitOrder>> FromMessage(const v1::MoveOrders& message);

v1::MoveReports ToMessage(std::span<const UnitReport> reports);
// InvalidArgument names the report.
absl::StatusOr<std::vector<UnitReport>> FromMessage(const v1::MoveReports& message);

// The rows go as a slice, without a copy.
grpc::ByteBuffer EncodeMove(PeerMessage message, const wire::PeerProof& peer);
// By a data socket: a ReplicateRequest, behind whose text the rows come as MoveChunk's array.
wire::Frame EncodeMoveFrame(PeerMessage message, const wire::PeerProof& peer,
                            std::uint64_t sequence);
struct MoveCall {
  PeerMessage message;
  wire::PeerProof peer;
};
// The rows come with one copy, into memory of `pool`. InvalidArgument.
absl::StatusOr<MoveCall> DecodeMove(grpc::ByteBuffer& bytes, BufferPool& pool,
                                    const wire::RequestLimits& limits);
wire::PeerProof ProofOf(const v1::MoveMessage& message);
// `rows`: those of a chunk. InvalidArgument.
absl::StatusOr<PeerMessage> FromMessage(const v1::MoveMessage& message, Buffer rows);

}  // namespace embla
