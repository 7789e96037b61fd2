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

// Memory for segments: it holds one after the other, as pages that are there already are not asked
// for.
using SegmentMemory = std::array<std::string, 2>;

// Reads segments in an order that is known, each while its caller is busy with the one before.
class SegmentReader {
 public:
  // `storage` and `memory` are not owned; they outlive this object.
  SegmentReader(const LogStorage& storage, std::vector<std::uint64_t> numbers,
                SegmentMemory& memory)
      : storage_(storage), numbers_(std::move(numbers)), memory_(memory) {
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
  SegmentMemory& memory_;
  std::size_t done_ = 0;
  std::future<absl::Status> next_;
};

absl::StatusOr<SegmentScan> Scan(const LogStorage& storage, std::uint64_t number, bool newest,
                                 std::string_view content, const LogVisitor& visit) {
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
                       SegmentMemory& memory, RecoveredLog* log) {
  LogRecovery& report = log->report;
  SegmentReader reader(storage, {numbers.rbegin(), numbers.rend()}, memory);
  for (std::size_t i = numbers.size(); i-- > 0;) {
    const bool newest = i + 1 == numbers.size();
    if (!newest && numbers[i] + 1 != numbers[i + 1]) {
      return Missing(storage, numbers[i + 1] - 1, report.keep_from);
    }
    EMBLA_ASSIGN_OR_RETURN(const std::string_view content, reader.Next());
    EMBLA_ASSIGN_OR_RETURN(const SegmentScan scan,
                           Scan(storage, numbers[i], newest, content, /*visit=*/nullptr));
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

absl::Status Replay(const LogStorage& storage, const LogSink& sink, SegmentMemory& memory,
                    RecoveredLog* log) {
  const LogVisitor visit = [&](const LogRecordView& record) {
    if (record.lsn < log->report.keep_from || record.type == LogRecordType::kMark) {
      return absl::OkStatus();
    }
    ++log->report.records;
    return sink(record);
  };
  std::vector<std::uint64_t> numbers;
  for (const SegmentHeader& segment : log->segments) numbers.push_back(segment.number);
  SegmentReader reader(storage, numbers, memory);
  for (const std::uint64_t number : numbers) {
    EMBLA_ASSIGN_OR_RETURN(const std::string_view content, reader.Next());
    const bool newest = number == numbers.back();
    EMBLA_RETURN_IF_ERROR(Scan(storage, number, newest, content, visit).status());
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
  SegmentMemory memory;
  EMBLA_RETURN_IF_ERROR(ReadChain(storage, numbers, memory, &log));
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
  EMBLA_RETURN_IF_ERROR(Replay(storage, needed, memory, &log));
  for (const std::uint64_t number : numbers) {
    if (number < log.segments.front().number) log.garbage.push_back(SegmentName(number));
  }
  return log;
}

}  // namespace embla
