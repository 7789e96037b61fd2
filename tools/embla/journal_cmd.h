// embla journal ...: reads the data directory of a shard server that does not run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/embla/output.h"
#include "tools/embla/verb.h"

namespace embla::cli {

struct JournalFlags {
  std::string directory;
  std::uint64_t from = 0;   // Records from this LSN on.
  std::uint64_t limit = 0;  // At most so many; 0: all.
};

std::vector<Verb> JournalVerbs();

// A record per line; with -o json a JSON document per line. Nothing is changed. Errors: NotFound
// (no journal there), FailedPrecondition (a process has it open; a newer program wrote it),
// DataLoss (names file and offset, or the record that is none).
absl::Status JournalDumpVerb(const JournalFlags& flags, const Output& output);

// Reads all of it and prints what is there, by kind. The same errors.
absl::Status JournalVerifyVerb(const JournalFlags& flags, const Output& output);

}  // namespace embla::cli
