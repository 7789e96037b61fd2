// Updates as records of a node's journal; the bytes are those of docs/journal_format.md.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "server/shard/journal.h"

namespace embla {

std::string EncodeUpdateRecord(const DecidedUpdate& update);

// What is returned may be trusted as far as it can be without the tables, as a decoded request may,
// and views `bytes`. DataLoss: not an update record.
// Requires: bytes.data() is aligned to 8.
absl::StatusOr<DecidedUpdate> DecodeUpdateRecord(std::span<const std::byte> bytes);

}  // namespace embla
