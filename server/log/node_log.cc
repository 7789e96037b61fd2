#include "server/log/node_log.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

constexpr std::uint64_t kSegmentBytesMin = 512;
constexpr std::uint64_t kSegmentBytesMax = std::uint64_t{1} << 31;

LogLsn Next(LogLsn lsn) { return LogLsn{ToInt(lsn) + 1}; }

void Tell(const LogDone& done, const absl::Status& status) {
  if (done) done(status);
}

}  // namespace

absl::Status NodeLogOptions::Validate() const {
  if (segment_bytes_max < kSegmentBytesMin || segment_bytes_max > kSegmentBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("segment_bytes_max is ", segment_bytes_max,
                                                   ", allowed is ", kSegmentBytesMin, " to ",
                                                   kSegmentBytesMax));
  }
  if (group_bytes_max > 0 && queue_bytes_max > 0 && sync_delay >= absl::ZeroDuration()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "group_bytes_max and queue_bytes_max must not be 0, sync_delay not negative");
}

absl::StatusOr<std::unique_ptr<NodeLog>> NodeLog::Open(LogStorage& storage,
                                                       const NodeLogOptions& options,
                                                       const LogSink& sink) {
  EMBLA_RETURN_IF_ERROR(options.Validate());
  EMBLA_ASSIGN_OR_RETURN(RecoveredLog recovered, RecoverLog(storage, sink, options.needed_from));
  const std::vector<std::string> garbage = recovered.garbage;
  auto log = std::unique_ptr<NodeLog>(new NodeLog(storage, options, std::move(recovered)));
  EMBLA_RETURN_IF_ERROR(log->Start(garbage));
  return log;
}

NodeLog::NodeLog(LogStorage& storage, const NodeLogOptions& options, RecoveredLog recovered)
    : storage_(storage),
      options_(options),
      recovery_(recovered.report),
      segments_(storage, options.segment_bytes_max, recovered.newest),
      next_lsn_(recovery_.next_lsn),
      written_lsn_(LogLsn{ToInt(recovery_.next_lsn) - 1}),
      durable_lsn_(written_lsn_),
      keep_from_(recovery_.keep_from),
      live_(std::move(recovered.segments)) {}

absl::Status NodeLog::Start(const std::vector<std::string>& garbage) {
  if (!recovery_.torn_file.empty()) {
    LogWarning("log", "dropped a torn tail file=", recovery_.torn_file,
               " offset=", recovery_.torn_offset, " bytes=", recovery_.torn_bytes);
  }
  EMBLA_RETURN_IF_ERROR(segments_.Start());
  for (const std::string& name : garbage) {
    const absl::Status removed = storage_.Remove(name);
    if (!removed.ok())
      LogWarning("log", "cannot remove what a truncation left: ", removed.message());
  }
  {
    const MutexLock lock(mu_);
    file_ = &segments_.file();
    if (live_.empty()) live_.push_back(segments_.header());
  }
  writer_ = std::thread([this] { WriteLoop(); });
  syncer_ = std::thread([this] { SyncLoop(); });
  return absl::OkStatus();
}

NodeLog::~NodeLog() { static_cast<void>(Close()); }

std::size_t NodeLog::payload_bytes_max() const {
  constexpr std::size_t kWord = 8;
  return (options_.segment_bytes_max - kSegmentHeaderBytes - kRecordHeaderBytes) / kWord * kWord;
}

absl::StatusOr<LogLsn> NodeLog::AppendUpdate(Durability level, std::uint16_t kind,
                                             LogPayload payload, LogDone done) {
  if (level != Durability::kNone) {
    return Append({.type = LogRecordType::kUpdate, .level = level, .kind = kind},
                  std::move(payload), std::move(done));
  }
  Tell(done, absl::OkStatus());
  return LogLsn{};
}

absl::StatusOr<LogLsn> NodeLog::AppendControl(std::uint16_t kind, LogPayload payload,
                                              LogDone done) {
  return Append({.type = LogRecordType::kControl, .kind = kind}, std::move(payload),
                std::move(done));
}

void NodeLog::SyncTail(std::size_t bytes_max, LogDone done) {
  absl::Status status;
  {
    const MutexLock lock(mu_);
    status = broken_;
    if (status.ok() && unsynced_bytes_ + syncing_bytes_ > bytes_max) {
      Pending waiting;
      waiting.lsn = written_lsn_;
      waiting.done = std::exchange(done, nullptr);
      awaiting_sync_.push_back(std::move(waiting));
      sync_wanted_ = true;
      written_.NotifyAll();
    }
  }
  Tell(done, status);
}

absl::StatusOr<LogLsn> NodeLog::WriteControl(std::uint16_t kind, LogPayload payload) {
  return AppendAndWait({.type = LogRecordType::kControl, .kind = kind}, std::move(payload));
}

absl::StatusOr<LogLsn> NodeLog::Append(const LogRecordView& record, LogPayload payload,
                                       LogDone done) {
  if (payload.size() > payload_bytes_max()) {
    return absl::InvalidArgumentError(absl::StrCat("a log record of ", payload.size(),
                                                   " bytes, allowed are ", payload_bytes_max(),
                                                   ": update fewer rows at once"));
  }
  const bool is_update = record.type == LogRecordType::kUpdate;
  const bool is_queued = record.level == Durability::kQueued;
  const std::size_t limit =
      options_.queue_bytes_max + (is_update ? 0 : options_.control_queue_bytes);
  Pending pending;
  pending.level = record.level;
  pending.is_final = is_update && (is_queued || options_.accepted_is_final);
  pending.uses_reserve = pending.is_final || !is_update;
  pending.record = OutgoingRecord(record, std::move(payload));
  pending.bytes = pending.record.bytes();
  pending.done = std::exchange(done, nullptr);
  LogLsn lsn{};
  {
    const MutexLock lock(mu_);
    EMBLA_RETURN_IF_ERROR(broken_);
    if (closing_) return absl::UnavailableError("the log is closed");
    if (queued_bytes_ > 0 && queued_bytes_ + pending.bytes > limit) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the log has ", queued_bytes_, " bytes to write, allowed are ", limit));
    }
    if (pending.is_final && disk_full_) {
      look_for_room_ = true;
      queued_.NotifyOne();
      return absl::ResourceExhaustedError("the log's disk is full");
    }
    lsn = pending.lsn = next_lsn_;
    next_lsn_ = Next(lsn);
    queued_bytes_ += pending.bytes;
    // Behind half a queue, callers are slowed down to the disk's speed before they are refused.
    if (is_queued && queued_bytes_ <= options_.queue_bytes_max / 2)
      done = std::exchange(pending.done, nullptr);
    queue_.push_back(std::move(pending));
    queued_.NotifyOne();
  }
  Tell(done, absl::OkStatus());
  return lsn;
}

absl::StatusOr<LogLsn> NodeLog::AppendAndWait(const LogRecordView& record, LogPayload payload) {
  std::optional<absl::Status> result;
  const absl::StatusOr<LogLsn> lsn =
      Append(record, std::move(payload), [&](const absl::Status& status) {
        const MutexLock lock(wait_mu_);
        result = status;
        waited_.NotifyAll();
      });
  if (!lsn.ok()) return lsn;
  const MutexLock lock(wait_mu_);
  while (!result) waited_.Wait(wait_mu_);
  EMBLA_RETURN_IF_ERROR(*result);
  return lsn;
}

absl::Status NodeLog::Truncate(LogLsn keep_from) {
  bool is_new = false;
  {
    const MutexLock lock(mu_);
    if (truncating_) return absl::AbortedError("the log is being truncated");
    if (keep_from > next_lsn_) {
      return absl::InvalidArgumentError(absl::StrCat("cannot truncate the log below ",
                                                     ToInt(keep_from), ", its next LSN is ",
                                                     ToInt(next_lsn_)));
    }
    is_new = keep_from > keep_from_;
    truncating_ = true;
  }
  absl::Status status;
  if (is_new) {
    status = AppendAndWait({.type = LogRecordType::kMark}, EncodeMark(keep_from)).status();
  }
  std::vector<std::string> names;
  if (status.ok()) {
    const MutexLock lock(mu_);
    if (is_new) keep_from_ = keep_from;
    for (std::size_t i = 0; i + 1 < live_.size() && live_[i + 1].first_lsn <= keep_from_; ++i) {
      names.push_back(SegmentName(live_[i].number));
    }
  }
  std::size_t removed = 0;
  while (removed < names.size() && (status = storage_.Remove(names[removed])).ok()) ++removed;
  if (removed > 0 && status.ok()) status = storage_.SyncDirectory();
  const MutexLock lock(mu_);
  live_.erase(live_.begin(), live_.begin() + static_cast<std::ptrdiff_t>(removed));
  truncating_ = false;
  return status;
}

absl::Status NodeLog::Close() {
  if (writer_.joinable()) {
    LogLsn keep_from{};
    {
      const MutexLock lock(mu_);
      keep_from = keep_from_;
    }
    // The second mark says that everything up to the first is synced: no damage to it can pass for
    // the torn tail of a crash. A log that cannot take marks is closed without.
    for (int i = 0; i < 2 && next_lsn() > recovery_.next_lsn; ++i) {
      static_cast<void>(AppendAndWait({.type = LogRecordType::kMark}, EncodeMark(keep_from)));
    }
    {
      const MutexLock lock(mu_);
      closing_ = true;
      queued_.NotifyAll();
    }
    writer_.join();
    syncer_.join();
    LogLsn noted{};
    {
      const MutexLock lock(mu_);
      if (broken_.ok()) noted = Next(durable_lsn_);
    }
    if (noted > recovery_.next_lsn) segments_.Note(noted);
  }
  const MutexLock lock(mu_);
  return broken_;
}

LogLsn NodeLog::next_lsn() const {
  const MutexLock lock(mu_);
  return next_lsn_;
}

LogLsn NodeLog::durable_lsn() const {
  const MutexLock lock(mu_);
  return durable_lsn_;
}

std::size_t NodeLog::queued_bytes() const {
  const MutexLock lock(mu_);
  return queued_bytes_;
}

std::size_t NodeLog::segment_count() const {
  const MutexLock lock(mu_);
  return live_.size();
}

absl::Status NodeLog::Break(const absl::Status& cause) {
  std::vector<Pending> told;
  absl::Status broken;
  {
    const MutexLock lock(mu_);
    if (!broken_.ok()) return broken_;
    broken = broken_ = absl::UnavailableError(
        absl::StrCat("the log in ", storage_.path(),
                     " writes no more, which of its last records last is unknown until a restart: ",
                     cause.message()));
    told = std::exchange(awaiting_sync_, {});
    told.insert(told.end(), std::make_move_iterator(queue_.begin()),
                std::make_move_iterator(queue_.end()));
    queue_.clear();
    for (const Pending& record : told) queued_bytes_ -= record.bytes;
    written_.NotifyAll();
    synced_.NotifyAll();
  }
  LogError("log", broken.message());
  for (const Pending& record : told) Tell(record.done, broken);
  return broken;
}

// --- The sync thread.

void NodeLog::SyncLoop() {
  LogLsn target{};
  while (LogFile* const file = WaitForWork(&target)) {
    NoteWhatIsDue();
    if (const absl::Status synced = file->Sync(); !synced.ok()) {
      static_cast<void>(Break(synced));
      return;
    }
    FinishSync(target);
  }
}

// Here, not where the segment begins: a note costs syncs, and records are written meanwhile.
void NodeLog::NoteWhatIsDue() {
  std::optional<LogNote> note;
  {
    const MutexLock lock(mu_);
    note = std::exchange(note_due_, std::nullopt);
  }
  if (note) NoteLog(storage_, *note);
}

LogFile* NodeLog::WaitForWork(LogLsn* target) {
  const MutexLock lock(mu_);
  absl::Time deadline = absl::InfiniteFuture();
  while (true) {
    const bool behind = durable_lsn_ < written_lsn_;
    if (!broken_.ok() || (writer_done_ && !behind)) return nullptr;
    if (behind && (sync_wanted_ || writer_done_)) break;
    if (behind && deadline == absl::InfiniteFuture())
      deadline = Clock::Real().Now() + options_.sync_delay;
    if (!behind || deadline == absl::InfiniteFuture()) {
      written_.Wait(mu_);
      continue;
    }
    const absl::Duration left = deadline - Clock::Real().Now();
    if (left <= absl::ZeroDuration()) break;
    written_.WaitFor(mu_, left);
  }
  sync_wanted_ = false;
  syncing_bytes_ = std::exchange(unsynced_bytes_, 0);
  *target = written_lsn_;
  return file_;
}

void NodeLog::FinishSync(LogLsn target) {
  std::vector<Pending> told;
  {
    const MutexLock lock(mu_);
    durable_lsn_ = target;
    syncing_bytes_ = 0;
    const auto end = std::find_if(awaiting_sync_.begin(), awaiting_sync_.end(),
                                  [&](const Pending& record) { return record.lsn > target; });
    told.assign(std::make_move_iterator(awaiting_sync_.begin()), std::make_move_iterator(end));
    awaiting_sync_.erase(awaiting_sync_.begin(), end);
    for (const Pending& record : told) queued_bytes_ -= record.bytes;
    synced_.NotifyAll();
  }
  for (const Pending& record : told) Tell(record.done, absl::OkStatus());
}

}  // namespace embla
