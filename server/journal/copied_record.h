// Decisions about this node's copy of a data_parallel table, as records of the node's journal; the
// bytes are those of docs/journal_format.md.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "server/journal/record_bytes.h"
#include "server/shard/decision.h"

namespace embla {

// Add the record to `out`.
void PutCopied(const CopiedUpdate& update, RecordWriter& out);
void PutCopied(const CopiedRows& piece, RecordWriter& out);
void PutCopied(const CopyConfirmed& confirmed, RecordWriter& out);
void PutCopied(const CopyGone& gone, RecordWriter& out);

// One of the four, whose memory is `bytes`. DataLoss: not such a record.
// Requires: bytes.data() is aligned to 8.
absl::StatusOr<Decision> DecodeCopiedRecord(const SharedBuffer& bytes);

}  // namespace embla
