#include "server/log/log_recovery.h"

#include <algorithm>
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

// `content` holds one segment after the other: pages that are there already are not asked for.
absl::StatusOr<SegmentScan> ReadSegment(const LogStorage& storage, std::uint64_t number,
                                        bool newest, const LogVisitor& visit,
                                        std::string& content) {
  EMBLA_RETURN_IF_ERROR(storage.ReadInto(SegmentName(number), content));
  const std::string path = PathOf(storage, number);
  EMBLA_ASSIGN_OR_RETURN(SegmentScan scan, ScanSegment(content, path, newest, visit));
  if (scan.header.number != number) {
    return LogLoss(path, 0,
                   absl::StrCat("it is segment ", scan.header.number, " under another name"));
  }
  return scan;
}

// Whether `before` is the segment that `after` was written behind.
absl::Status CheckChain(const LogStorage& storage, const SegmentScan& before,
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

absl::Status Missing(const LogStorage& storage, std::uint64_t number, LogLsn keep_from) {
  return absl::DataLossError(absl::StrCat(
      PathOf(storage, number), " is missing, at offset 0: records from ", ToInt(keep_from),
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

// The segments from the one that holds `keep_from` to the newest, which is `numbers.back()`;
// numbers.size() of them are there.
absl::Status ReadChain(const LogStorage& storage, const std::vector<std::uint64_t>& numbers,
                       std::string& content, RecoveredLog* log) {
  LogRecovery& report = log->report;
  for (std::size_t i = numbers.size(); i-- > 0;) {
    const bool newest = i + 1 == numbers.size();
    if (!newest && numbers[i] + 1 != numbers[i + 1]) {
      return Missing(storage, numbers[i + 1] - 1, report.keep_from);
    }
    EMBLA_ASSIGN_OR_RETURN(const SegmentScan scan,
                           ReadSegment(storage, numbers[i], newest, /*visit=*/nullptr, content));
    if (newest) {
      report.next_lsn = scan.next_lsn;
      log->newest = scan;
      if (scan.valid_bytes < content.size()) {
        report.torn_file = PathOf(storage, numbers[i]);
        report.torn_offset = scan.valid_bytes;
        report.torn_bytes = content.size() - scan.valid_bytes;
      }
    } else {
      EMBLA_RETURN_IF_ERROR(CheckChain(storage, scan, log->segments.back()));
    }
    report.keep_from = std::max(report.keep_from, scan.keep_from);
    log->segments.push_back(scan.header);
    if (scan.header.first_lsn <= report.keep_from) {
      std::reverse(log->segments.begin(), log->segments.end());
      return absl::OkStatus();
    }
  }
  return Missing(storage, numbers.front() - 1, report.keep_from);
}

absl::Status Replay(const LogStorage& storage, const LogSink& sink, std::string& content,
                    RecoveredLog* log) {
  const LogVisitor visit = [&](const LogRecordView& record) {
    if (record.lsn < log->report.keep_from || record.type == LogRecordType::kMark) {
      return absl::OkStatus();
    }
    ++log->report.records;
    return sink(record);
  };
  for (const SegmentHeader& segment : log->segments) {
    const bool newest = segment.number == log->segments.back().number;
    EMBLA_RETURN_IF_ERROR(ReadSegment(storage, segment.number, newest, visit, content).status());
  }
  return absl::OkStatus();
}

}  // namespace

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
    return Missing(storage, note->segment, log.report.keep_from);
  }
  if (numbers.empty()) return log;
  std::string content;
  EMBLA_RETURN_IF_ERROR(ReadChain(storage, numbers, content, &log));
  if (note) EMBLA_RETURN_IF_ERROR(CheckNote(storage, *note, log));
  if (needed_from != LogLsn{0} && log.report.keep_from > needed_from) {
    return absl::DataLossError(absl::StrCat(
        storage.path(), ": records from ", ToInt(needed_from), " on are needed, and those below ",
        ToInt(log.report.keep_from),
        " were given up for a snapshot that is not there, or damaged; restore the directory from a "
        "copy (docs/runbook.md)"));
  }
  if (!sink) return log;
  const LogSink needed = [&](const LogRecordView& record) {
    return record.lsn < needed_from ? absl::OkStatus() : sink(record);
  };
  EMBLA_RETURN_IF_ERROR(Replay(storage, needed, content, &log));
  for (const std::uint64_t number : numbers) {
    if (number < log.segments.front().number) log.garbage.push_back(SegmentName(number));
  }
  return log;
}

}  // namespace embla
