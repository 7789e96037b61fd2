// Recovers a log after a stop or a crash: reads, checks and replays it; nothing is changed.
//
// Segments are read from the newest back to the one with the first record that is needed; so the
// marks in them are known before older segments are asked for, and what an interrupted truncation
// left of those does not matter. Only then the records are replayed, oldest first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/log/log_format.h"
#include "server/log/log_storage.h"

namespace embla {

struct LogRecovery {
  std::uint64_t records = 0;  // Replayed.
  LogLsn keep_from{1};        // Records below are not replayed.
  LogLsn next_lsn{1};         // Above every record of the log.
  // Dropped: never synced, cut by a crash. The file's name is empty without a torn tail.
  std::string torn_file;
  std::uint64_t torn_offset = 0;
  std::uint64_t torn_bytes = 0;
};

struct RecoveredLog {
  LogRecovery report;
  std::optional<SegmentScan> newest;    // None: there is no log yet.
  std::vector<SegmentHeader> segments;  // Needed ones, oldest first, with the newest.
  std::vector<std::string> garbage;     // Files of the log that are not needed any more.
};

// Updates and controls from keep_from on, in order of their LSNs.
using LogSink = LogVisitor;

// DataLoss: corruption or a missing segment: names the file and the offset; nothing was given to
// `sink`. Errors of `sink` are returned as they are.
//
// Without a sink the log is checked, and that is all. Records below `needed_from` are not given to
// it either; 0: all that are kept are needed. DataLoss: some from there on are not kept any more.
absl::StatusOr<RecoveredLog> RecoverLog(const LogStorage& storage, const LogSink& sink,
                                        LogLsn needed_from = LogLsn{0});

}  // namespace embla
