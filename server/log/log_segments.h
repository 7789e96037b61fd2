// The segments of one log as its writer sees them: which one is written, how the next one begins,
// and that control records always find room.
//
// A segment is made under a spare name with its room reserved; when its turn comes it gets its
// header, is synced, renamed and the directory synced, and only then takes records. So a file with
// a segment's name always has a whole header, and a full disk shows when a spare is made, while the
// current segment still has room. One spare is kept for control records: updates are written only
// while there is one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/log/log_format.h"
#include "server/log/log_storage.h"

namespace embla {

std::string SegmentName(std::uint64_t number);
// None: not the name of a segment.
std::optional<std::uint64_t> SegmentNumber(std::string_view name);
inline constexpr std::string_view kSpareName = "spare";

// Thread safety: none; the log's writer owns it.
class LogSegments {
 public:
  // Continues after `newest`, the recovered segment; none: a new log. Nothing is written yet.
  LogSegments(LogStorage& storage, std::uint64_t segment_bytes_max,
              const std::optional<SegmentScan>& newest);

  // Opens the newest segment, cuts its torn tail and makes durable what it holds; or begins a log.
  absl::Status Start();
  // Notes how far the log has come (log_note.h): all records below `next_lsn` are synced. A note
  // that cannot be written is only logged: the log does without.
  void Note(LogLsn next_lsn);

  // Whether `bytes` more fit into the current segment; no more do after a write found no room.
  bool Fits(std::size_t bytes) const;
  bool has_spare() const { return spare_ != nullptr; }
  // ResourceExhausted: there is no room for a spare; everything else is as before.
  absl::Status EnsureSpare();
  // Makes the spare the current segment, whose records are from `first_lsn`. All records of the one
  // before must be synced. ResourceExhausted: there is no spare, and no room for one. Any other
  // error: the log cannot go on.
  absl::Status Rotate(LogLsn first_lsn);
  // Appends the sealed records that `next` gives, `bytes` in all; `last_crc` is that of the last
  // one's header when it has given all. ResourceExhausted: the disk is full and nothing was added.
  // Any other error: the log cannot go on.
  absl::Status Write(std::size_t bytes, LogFile::Source next, const std::uint32_t& last_crc);

  // The file of the current segment; it lives until the next Rotate.
  LogFile& file() { return *current_; }
  const SegmentHeader& header() const { return header_; }
  std::uint32_t seed() const { return seed_; }

 private:
  LogStorage& storage_;  // Not owned; outlives this object.
  const std::uint64_t segment_bytes_max_;
  const bool is_new_;
  SegmentHeader header_;
  std::uint32_t seed_ = 0;
  std::uint32_t last_crc_ = 0;
  bool full_ = false;
  LogLsn start_lsn_{};
  std::uint64_t start_bytes_ = 0;  // Offset of the recovered segment's torn tail.
  std::unique_ptr<LogFile> current_;
  std::unique_ptr<LogFile> spare_;
};

}  // namespace embla
