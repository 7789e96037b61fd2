// Changes by a primary to this node's copy of a data_parallel table, as records of the node's
// journal; the bytes are those of docs/journal_format.md.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "server/shard/replica_transport.h"

namespace embla {

// An update as it was applied, a piece of a snapshot, (a probe) that the copy has every
// acknowledged update, or, by the primary, that a node has lost its copy. Incarnation and order are
// all that is kept of the primary.
std::string EncodeCopiedRecord(const ReplicaMessage& message);

// Views `bytes`, but for row blocks, which are copied. DataLoss: not such a record.
// Requires: bytes.data() is aligned to 8.
absl::StatusOr<ReplicaMessage> DecodeCopiedRecord(std::span<const std::byte> bytes);

}  // namespace embla
