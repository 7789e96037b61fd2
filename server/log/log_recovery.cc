#include "server/log/log_recovery.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <future>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/ids.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/log/log_note.h"
#include "server/log/log_segments.h"

namespace embla {
namespace {

std::string PathOf(const LogStorage& storage, std::uint64_t number) {
  return storage.PathOf(SegmentName(number));
}

// Reads segments in an order that is known, each while its caller is busy with the one before.
class SegmentReader {
 public:
  // `storage` is not owned; it outlives this object.
  SegmentReader(const LogStorage& storage, std::vector<std::uint64_t> numbers)
      : storage_(storage), numbers_(std::move(numbers)) {
    Begin();
  }
  ~SegmentReader() {
    if (next_.valid()) next_.wait();
  }

  // Returns the next one, which is valid until the call after this. Requires: there is one.
  absl::StatusOr<std::string_view> Next() {
    EMBLA_RETURN_IF_ERROR(next_.get());
    ++done_;
    if (done_ < numbers_.size()) Begin();
    return memory_[(done_ - 1) % memory_.size()];
  }

 private:
  void Begin() {
    next_ = std::async(std::launch::async, [this, at = done_] {
      return storage_.ReadInto(SegmentName(numbers_[at]), memory_[at % memory_.size()]);
    });
  }

  const LogStorage& storage_;
  const std::vector<std::uint64_t> numbers_;
  std::array<std::string, 2> memory_;  // It holds one segment after the other.
  std::size_t done_ = 0;
  std::future<absl::Status> next_;
};

// The headers of the segments that follow each other up to the newest, oldest first. DataLoss: one
// of those that have records from `needed_from` on cannot be read; another one that cannot is left
// out, with all before it.
absl::StatusOr<std::vector<SegmentHeader>> ReadHeaders(const LogStorage& storage,
                                                       const std::vector<std::uint64_t>& numbers,
                                                       LogLsn needed_from) {
  std::vector<SegmentHeader> headers;
  for (std::size_t i = numbers.size(); i-- > 0;) {
    if (!headers.empty() && numbers[i] + 1 != headers.back().number) break;
    const bool is_needed = headers.empty() || headers.back().first_lsn > needed_from;
    EMBLA_ASSIGN_OR_RETURN(const std::string begin,
                           storage.ReadBegin(SegmentName(numbers[i]), kSegmentHeaderBytes));
    absl::StatusOr<SegmentHeader> header = DecodeSegmentHeader(begin, PathOf(storage, numbers[i]));
    if (header.ok() && header->number != numbers[i]) {
      header = LogLoss(PathOf(storage, numbers[i]), 0,
                       absl::StrCat("it is segment ", header->number, " under another name"));
    }
    if (!header.ok() && !is_needed) break;
    EMBLA_RETURN_IF_ERROR(header.status());
    headers.push_back(*header);
  }
  std::ranges::reverse(headers);
  return headers;
}

absl::Status Missing(const LogStorage& storage, std::uint64_t number, LogLsn needed_from) {
  return absl::DataLossError(absl::StrCat(
      PathOf(storage, number), " is missing, at offset 0: records from ", ToInt(needed_from),
      " on are needed; restore the directory from a copy (docs/runbook.md)"));
}

// Whether the log has come as far as it has noted.
absl::Status CheckNote(const LogStorage& storage, const LogNote& note, const RecoveredLog& log) {
  const SegmentScan& newest = *log.newest;
  const std::string path = PathOf(storage, newest.header.number);
  if (newest.header.log_id != note.log_id) {
    return LogLoss(path, 0, "it is a segment of another log");
  }
  if (newest.next_lsn >= note.next_lsn) return absl::OkStatus();
  return LogLoss(path, newest.valid_bytes,
                 absl::StrCat("its records end below ", ToInt(newest.next_lsn),
                              ", and the log had those below ", ToInt(note.next_lsn)));
}

// Reads log->segments from the `first` one on, and gives their records to `visit`.
absl::Status ReadSegments(const LogStorage& storage, std::size_t first, const LogVisitor& visit,
                          RecoveredLog* log) {
  std::vector<std::uint64_t> numbers;
  for (std::size_t i = first; i < log->segments.size(); ++i) {
    numbers.push_back(log->segments[i].number);
  }
  SegmentReader reader(storage, numbers);
  for (std::size_t i = first; i < log->segments.size(); ++i) {
    EMBLA_ASSIGN_OR_RETURN(const std::string_view content, reader.Next());
    if (i > first) EMBLA_RETURN_IF_ERROR(CheckFollows(storage, *log->newest, log->segments[i]));
    const std::string path = PathOf(storage, log->segments[i].number);
    const bool is_newest = i + 1 == log->segments.size();
    EMBLA_ASSIGN_OR_RETURN(log->newest, ScanSegment(content, path, is_newest, visit));
    LogRecovery& report = log->report;
    report.keep_from = std::max(report.keep_from, log->newest->keep_from);
    report.next_lsn = log->newest->next_lsn;
    if (log->newest->valid_bytes < content.size()) {
      report.torn_file = path;
      report.torn_offset = log->newest->valid_bytes;
      report.torn_bytes = content.size() - log->newest->valid_bytes;
    }
  }
  return absl::OkStatus();
}

// Leaves out what a truncation that was interrupted left. Segments that no mark gives up stay, even
// if they cannot be read.
void LeaveOutGarbage(const std::vector<std::uint64_t>& numbers, RecoveredLog* log) {
  std::vector<SegmentHeader>& segments = log->segments;
  const auto kept =
      std::ranges::upper_bound(segments, log->report.keep_from, {}, &SegmentHeader::first_lsn);
  if (kept == segments.begin()) return;
  segments.erase(segments.begin(), kept - 1);
  for (const std::uint64_t number : numbers) {
    if (number < segments.front().number) log->garbage.push_back(SegmentName(number));
  }
}

}  // namespace

absl::Status CheckFollows(const LogStorage& storage, const SegmentScan& before,
                          const SegmentHeader& after) {
  const std::string path = PathOf(storage, before.header.number);
  if (before.header.log_id != after.log_id) {
    return LogLoss(path, 0, "it is a segment of another log");
  }
  if (before.valid_bytes == after.previous_bytes && before.last_crc == after.previous_crc &&
      before.next_lsn <= after.first_lsn) {
    return absl::OkStatus();
  }
  return LogLoss(
      path, std::min(before.valid_bytes, after.previous_bytes),
      absl::StrCat("it has ", before.valid_bytes, " bytes, the segment behind it expects ",
                   after.previous_bytes, ", or other records"));
}

absl::StatusOr<RecoveredLog> RecoverLog(const LogStorage& storage, const LogSink& sink,
                                        LogLsn needed_from) {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<std::string> names, storage.List());
  std::vector<std::uint64_t> numbers;
  for (const std::string& name : names) {
    if (const std::optional<std::uint64_t> number = SegmentNumber(name)) {
      numbers.push_back(*number);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  RecoveredLog log;
  EMBLA_ASSIGN_OR_RETURN(const std::optional<LogNote> note, ReadLogNote(storage));
  if (note && (numbers.empty() || numbers.back() < note->segment)) {
    return Missing(storage, note->segment, needed_from);
  }
  if (numbers.empty()) return log;
  EMBLA_ASSIGN_OR_RETURN(log.segments, ReadHeaders(storage, numbers, needed_from));
  const auto after =
      std::ranges::upper_bound(log.segments, needed_from, {}, &SegmentHeader::first_lsn);
  const bool is_there = after != log.segments.begin();
  const std::size_t first = is_there ? after - log.segments.begin() - 1 : 0;
  const LogVisitor visit = [&](const LogRecordView& record) {
    const bool is_mark = record.type == LogRecordType::kMark;
    if (!is_there || is_mark || record.lsn < needed_from) return absl::OkStatus();
    ++log.report.records;
    return sink(record);
  };
  EMBLA_RETURN_IF_ERROR(ReadSegments(storage, first, visit, &log));
  if (note) EMBLA_RETURN_IF_ERROR(CheckNote(storage, *note, log));
  if (log.report.keep_from > needed_from) {
    return absl::DataLossError(absl::StrCat(
        storage.path(), ": records from ", ToInt(needed_from), " on are needed, and those below ",
        ToInt(log.report.keep_from),
        " were given up for a snapshot that is not there, or damaged; restore the directory from a "
        "copy (docs/runbook.md)"));
  }
  if (!is_there) return Missing(storage, log.segments.front().number - 1, needed_from);
  LeaveOutGarbage(numbers, &log);
  return log;
}

}  // namespace embla
