// A log's note of itself beside its segments: how far it has come. A log whose newest segment
// is missing, or shorter than it was, reads like a younger one; the note tells it from that.
//
// A note is written before the first sync of a new segment, at each start and at a clean stop, and
// only of what is synced. So it never says more than the segments have, and after a crash it may
// say less: what is cut off a segment then, behind the newest note, nobody can tell from a torn
// tail.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/log/log_format.h"
#include "server/log/log_storage.h"

namespace embla {

inline constexpr std::string_view kNoteName = "newest";

struct LogNote {
  std::uint64_t log_id = 0;
  std::uint64_t segment = 0;  // The number of the newest one.
  LogLsn next_lsn{};  // All records of the log below are synced; at least one is just below.
  bool operator==(const LogNote&) const = default;
};

std::string EncodeLogNote(const LogNote& note);
// DataLoss names `file`.
absl::StatusOr<LogNote> DecodeLogNote(std::string_view content, std::string_view file);

// None: the log has no note yet.
absl::StatusOr<std::optional<LogNote>> ReadLogNote(const LogStorage& storage);
// Replaces the note durably; after an error the old one or the new one is there.
absl::Status WriteLogNote(LogStorage& storage, const LogNote& note);
// The same; an error is only logged, as a log does without.
void NoteLog(LogStorage& storage, const LogNote& note);

}  // namespace embla
