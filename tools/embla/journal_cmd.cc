#include "tools/embla/journal_cmd.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/byte_text.h"
#include "core/base/ids.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/journal/record_text.h"
#include "server/journal/snapshot_files.h"
#include "server/log/log_recovery.h"
#include "server/log/log_segments.h"
#include "server/log/log_storage.h"
#include "tools/embla/invocation.h"
#include "tools/embla/text_table.h"

namespace embla::cli {
namespace {

using Json = nlohmann::ordered_json;

bool HasSegments(const std::string& directory) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (SegmentNumber(entry->path().filename().string()).has_value()) return true;
  }
  return false;
}

// Opening makes the directory and its lock: only where there is a journal.
absl::StatusOr<std::unique_ptr<DirectoryLogStorage>> OpenExisting(const std::string& directory) {
  if (!HasSegments(directory)) {
    return absl::NotFoundError(
        absl::StrCat("there is no journal in ", directory,
                     ": name the --data-dir of an embla-shard on this machine, or a copy of it"));
  }
  auto storage = DirectoryLogStorage::Open(directory);
  if (!absl::IsFailedPrecondition(storage.status())) return storage;
  return absl::FailedPreconditionError(
      absl::StrCat(Message(storage.status()), "; stop its embla-shard, or read a copy"));
}

void Put(const LogRecordView& record, const RecordText& text, const Output& output) {
  if (output.json) {
    const Json line = {{"lsn", ToInt(record.lsn)},
                       {"kind", text.kind},
                       {"bytes", record.payload.size()},
                       {"text", text.text}};
    output.out << line.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
    return;
  }
  output.out << absl::StreamFormat("%10d  %-8s  %10s  %s\n", ToInt(record.lsn), text.kind,
                                   FormatBytes(static_cast<std::int64_t>(record.payload.size())),
                                   text.text);
}

// A journal as a start would read it: the snapshots, and the records from the last one's position
// on.
struct Journal {
  std::unique_ptr<DirectoryLogStorage> storage;
  SnapshotChain snapshots;
  RecordTexts texts;

  LogLsn first() const {
    return snapshots.empty() ? LogLsn{1} : LogLsn{snapshots.back()->head().record.position};
  }
  std::uint64_t snapshot_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& snapshot : snapshots) bytes += snapshot->bytes();
    return bytes;
  }
};

// The snapshots that a start goes on with: it finds out on its way which ones are damaged.
absl::StatusOr<SnapshotChain> CheckedSnapshots(LogStorage& directory) {
  DamagedSnapshots damaged;
  while (true) {
    const std::size_t known = damaged.numbers.size();
    EMBLA_ASSIGN_OR_RETURN(SnapshotChain chain, OpenSnapshots(directory, damaged));
    for (const auto& snapshot : chain) {
      const absl::Status checked = snapshot->CheckAll();
      if (checked.ok()) continue;
      if (!absl::IsDataLoss(checked) && !absl::IsUnavailable(checked)) return checked;
      LogError("journal", "a snapshot is damaged: ", checked.message());
      damaged.numbers.insert(snapshot->head().record.number);
    }
    if (damaged.numbers.size() == known) return chain;
  }
}

absl::StatusOr<Journal> OpenJournal(const std::string& directory) {
  Journal journal;
  EMBLA_ASSIGN_OR_RETURN(journal.storage, OpenExisting(directory));
  EMBLA_ASSIGN_OR_RETURN(journal.snapshots, CheckedSnapshots(*journal.storage));
  if (journal.snapshots.empty()) return journal;
  const SnapshotHead& head = journal.snapshots.back()->head();
  journal.texts = RecordTexts(head.image.plan, head.record.log_process);
  return journal;
}

struct Count {
  std::uint64_t records = 0;
  std::int64_t bytes = 0;
};

void PutSummary(const JournalFlags& flags, const Journal& journal, const RecoveredLog& log,
                const std::map<std::string, Count>& counts, const Output& output) {
  const LogRecovery& report = log.report;
  const RecordTexts& texts = journal.texts;
  std::uint64_t records = 0;
  for (const auto& [kind, count] : counts) records += count.records;
  if (output.json) {
    Json kinds = Json::object();
    for (const auto& [kind, count] : counts) {
      kinds[kind] = {{"records", count.records}, {"bytes", count.bytes}};
    }
    output.PutJson({{"directory", flags.directory},
                    {"segments", log.segments.size()},
                    {"snapshots", journal.snapshots.size()},
                    {"snapshot_bytes", journal.snapshot_bytes()},
                    {"records", records},
                    {"first_lsn", ToInt(journal.first())},
                    {"next_lsn", ToInt(report.next_lsn)},
                    {"torn_bytes", report.torn_bytes},
                    {"processes", texts.processes()},
                    {"plan_version", ToInt(texts.plan().version())},
                    {"tables", texts.plan().tables().size()},
                    {"kinds", std::move(kinds)}});
    return;
  }
  output.out << flags.directory << ": intact; records " << records << ", processes "
             << texts.processes() << ", segments " << log.segments.size() << ", plan "
             << ToInt(texts.plan().version()) << ", tables " << texts.plan().tables().size()
             << "\n";
  if (!journal.snapshots.empty()) {
    output.out << "begins with snapshots " << journal.snapshots.front()->head().record.number
               << " to " << journal.snapshots.back()->head().record.number << " of "
               << FormatBytes(static_cast<std::int64_t>(journal.snapshot_bytes())) << ", at record "
               << ToInt(journal.first()) << "\n";
  }
  if (!report.torn_file.empty()) {
    output.out << "the last " << report.torn_bytes << " bytes of " << report.torn_file
               << " were cut by a crash before they counted: the next start drops them\n";
  }
  TextTable table({"kind", ">records", ">bytes"});
  for (const auto& [kind, count] : counts) {
    table.Add(
        {kind, FormatCount(static_cast<std::int64_t>(count.records)), FormatBytes(count.bytes)});
  }
  output.out << table.Render();
}

}  // namespace

std::vector<Verb> JournalVerbs() {
  const auto flags = std::make_shared<JournalFlags>();
  const Argument directory = {"directory", "its --data-dir", &flags->directory};
  return {{.name = "verify",
           .help = "check every record, and count them by kind",
           .arguments = {directory},
           .run_alone =
               [flags](const Invocation& in) { return JournalVerifyVerb(*flags, in.output()); }},
          {.name = "dump",
           .help = "print its records, one per line",
           .arguments = {directory,
                         {"--from", "records from this LSN on", &flags->from, false},
                         {"--limit", "at most so many; 0, the default: all", &flags->limit, false}},
           .run_alone = [flags](const Invocation& in) {
             return JournalDumpVerb(*flags, in.output());
           }}};
}

absl::Status JournalDumpVerb(const JournalFlags& flags, const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(Journal journal, OpenJournal(flags.directory));
  std::uint64_t shown = 0;
  const auto put = [&](const LogRecordView& record) -> absl::Status {
    EMBLA_ASSIGN_OR_RETURN(const RecordText text, journal.texts.Describe(record));
    const bool is_in_limit = flags.limit == 0 || shown < flags.limit;
    if (ToInt(record.lsn) < flags.from || !is_in_limit) return absl::OkStatus();
    ++shown;
    Put(record, text, output);
    if (output.out) return absl::OkStatus();
    return absl::UnavailableError("records cannot be written: is the disk full?");
  };
  return RecoverLog(*journal.storage, put, journal.first()).status();
}

absl::Status JournalVerifyVerb(const JournalFlags& flags, const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(Journal journal, OpenJournal(flags.directory));
  std::map<std::string, Count> counts;
  const auto add = [&](const LogRecordView& record) -> absl::Status {
    EMBLA_ASSIGN_OR_RETURN(const RecordText text, journal.texts.Describe(record));
    Count& count = counts[text.kind];
    ++count.records;
    count.bytes += static_cast<std::int64_t>(record.payload.size());
    return absl::OkStatus();
  };
  EMBLA_ASSIGN_OR_RETURN(const RecoveredLog log,
                         RecoverLog(*journal.storage, add, journal.first()));
  PutSummary(flags, journal, log, counts, output);
  return absl::OkStatus();
}

}  // namespace embla::cli
