// Recovers a log after a stop or a crash: reads, checks and replays it; nothing is changed.
//
// Segments are read once, from the one with the first record that is needed, which their headers
// tell, to the newest. What an interrupted truncation left of older ones does not matter.
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
  LogLsn keep_from{1};        // The highest mark: records below may have been given up.
  LogLsn next_lsn{1};         // Above every record of the log.
  // Dropped: never synced, cut by a crash. The file's name is empty without a torn tail.
  std::string torn_file;
  std::uint64_t torn_offset = 0;
  std::uint64_t torn_bytes = 0;
};

struct RecoveredLog {
  LogRecovery report;
  std::optional<SegmentScan> newest;    // None: there is no log yet.
  std::vector<SegmentHeader> segments;  // All but garbage, oldest first.
  std::vector<std::string> garbage;     // Files of the log that are not needed any more.
};

// DataLoss, which names the file: `before` is not the segment that `after` was written behind.
absl::Status CheckFollows(const LogStorage& storage, const SegmentScan& before,
                          const SegmentHeader& after);

// Updates and controls, in order of their LSNs.
using LogSink = LogVisitor;

// Gives `sink` the records from `needed_from` on. DataLoss: corruption or a missing segment, with
// the name of the file and the offset, or those records are not kept any more; errors of `sink`. It
// may have been given all of the records by then: whoever made something of them drops it.
absl::StatusOr<RecoveredLog> RecoverLog(const LogStorage& storage, const LogSink& sink,
                                        LogLsn needed_from = LogLsn{1});

}  // namespace embla
