// Updates as records of a node's journal; the bytes are those of docs/journal_format.md.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "server/journal/record_bytes.h"
#include "server/shard/decision.h"

namespace embla {

// Adds the record of an update to `out`. That of a synchronous step begins with what it was made
// of.
void PutUpdate(const DecidedUpdate& update, RecordWriter& out);
std::string EncodeUpdateRecord(const DecidedUpdate& update);

// Decodes an update that may be trusted as far as possible without the tables, as a decoded request
// may; its memory is `bytes`. DataLoss: not such a record. Requires: bytes.data() is aligned to 8.
absl::StatusOr<DecidedUpdate> DecodeUpdateRecord(const SharedBuffer& bytes);
absl::StatusOr<DecidedUpdate> DecodeStepRecord(const SharedBuffer& bytes);

}  // namespace embla
