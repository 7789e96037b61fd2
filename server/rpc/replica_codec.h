// Messages between the copies of a table, to and from what travels (core/wire/replicate_codec.h).
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/wire/frame.h"
#include "core/wire/peer_proof.h"
#include "core/wire/replicate_codec.h"
#include "server/shard/replica_transport.h"

namespace embla {

// Payloads are shared with whoever else keeps them, or copied: gRPC may hold a message's slices a
// little longer than the call lasts.
grpc::ByteBuffer EncodeReplica(const ReplicaMessage& message, const wire::PeerProof& proof);
// Requires: it is an update.
wire::Frame EncodeReplicaFrame(const ReplicaMessage& message, const wire::PeerProof& proof,
                               const wire::ReplicateOrder& order);

// Errors: InvalidArgument.
absl::StatusOr<ReplicaMessage> FromWire(wire::ReplicateCall call);

wire::ReplicateAck ToWire(const ReplicaAck& ack);
ReplicaAck FromWire(const wire::ReplicateAck& ack);

}  // namespace embla
