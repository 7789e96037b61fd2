// Replies of the data service, alone and inside StreamReply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/base/ids.h"
#include "core/rows/refused_unit.h"
#include "core/wire/large_fields.h"

namespace embla::wire {

struct LookupReply {
  PlanVersion plan_version{};
  std::vector<RefusedUnit> refused = {};  // Not empty: there are no rows.
};

struct UpdateReply {
  PlanVersion plan_version{};
  bool duplicate = false;
  std::vector<RefusedUnit> refused = {};
  std::vector<RefusedClaim> refused_claims = {};
};

// --- Encoding: what a server does. `rows` is sent without a copy.

grpc::ByteBuffer EncodeLookupReply(const LookupReply& reply, SharedBuffer rows);
grpc::ByteBuffer EncodeUpdateReply(const UpdateReply& reply);

// How a lookup's rows are cut into messages.
struct StreamFrames {
  std::uint32_t bytes_max = 0;  // Most bytes of rows in one message; 0: one message.
  bool more = false;            // These rows are not the lookup's last.
};
// The messages in order; all share `rows`.
std::vector<SplitMessage> EncodeStreamLookupReply(std::uint64_t sequence, const LookupReply& reply,
                                                  const SharedBuffer& rows,
                                                  const StreamFrames& frames);
SplitMessage EncodeStreamUpdateReply(std::uint64_t sequence, const UpdateReply& reply);
// Requires: !status.ok().
SplitMessage EncodeStreamError(std::uint64_t sequence, const absl::Status& status);

// A socket by which a stream's requests may go on (docs/data_sockets.md).
struct DataSocketOffer {
  std::string address;       // A unix socket's.
  std::string ticket;        // kTicketBytes.
  bool by_port = false;      // The node's port takes it as well.
  bool takes_seals = false;  // Frames may end with one (seal.h).
};
inline constexpr std::size_t kTicketBytes = 32;
SplitMessage EncodeStreamOffer(const DataSocketOffer& offer);

// --- Decoding: what a client does. Errors: InvalidArgument (not such a message), and those of
// `place`, which returns where the next `size` bytes of rows go. It is not called for empty rows.

using PlaceRows = std::function<absl::StatusOr<std::byte*>(std::size_t size)>;
absl::StatusOr<LookupReply> DecodeLookupReply(grpc::ByteBuffer& bytes, const PlaceRows& place);
absl::StatusOr<UpdateReply> DecodeUpdateReply(grpc::ByteBuffer& bytes);

struct StreamReply {
  enum class Kind : std::uint8_t { kError, kLookup, kUpdate, kOffer };

  std::uint64_t sequence = 0;
  Kind kind = Kind::kError;
  absl::Status status;                            // kError: never OK. Else OK.
  PlanVersion plan_version{};                     // kLookup, kUpdate.
  std::size_t rows_bytes = 0;                     // kLookup: of this frame.
  bool duplicate = false;                         // kUpdate.
  std::vector<RefusedUnit> refused = {};          // kLookup, kUpdate.
  std::vector<RefusedClaim> refused_claims = {};  // kUpdate.
  bool more = false;                              // Another frame of this sequence follows.
  DataSocketOffer offer = {};                     // kOffer, which has no sequence.
};
using PlaceStreamRows =
    std::function<absl::StatusOr<std::byte*>(std::uint64_t sequence, std::size_t size)>;
absl::StatusOr<StreamReply> DecodeStreamReply(grpc::ByteBuffer& bytes,
                                              const PlaceStreamRows& place);
// A reply whose rows, `rows_bytes` of them, come after its text (core/wire/frame.h).
absl::StatusOr<StreamReply> DecodeStreamReplyText(std::string_view text, std::size_t rows_bytes);

}  // namespace embla::wire
