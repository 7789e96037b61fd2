// The writer's thread of NodeLog: queue to groups, groups to segments, and what a full disk does.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "server/log/node_log.h"

namespace embla {

// The disk begins with so many written bytes while nobody waits for them.
constexpr std::size_t kBeginSyncBytes = std::size_t{1} << 20;

// Records that are written together, from where they are.
struct NodeLog::Group {
  std::vector<Pending> records;
  std::size_t bytes = 0;

  void Add(Pending record) {
    bytes += record.bytes;
    records.push_back(std::move(record));
  }
  std::vector<Pending> Take() {
    bytes = 0;
    return std::exchange(records, {});
  }
};

void NodeLog::WriteLoop() {
  std::vector<Pending> queue;
  while (TakeQueue(&queue)) {
    std::size_t bytes = 0;
    for (const Pending& record : queue) bytes += record.bytes;
    WriteQueue(std::exchange(queue, {}));
    if (options_.pause_after) Pause(options_.pause_after(bytes));
  }
}

void NodeLog::Pause(absl::Duration pause) {
  const absl::Time end = Clock::Real().Now() + pause;
  const MutexLock lock(mu_);
  while (!closing_ && Clock::Real().Now() < end) queued_.WaitFor(mu_, end - Clock::Real().Now());
}

bool NodeLog::TakeQueue(std::vector<Pending>* queue) {
  const MutexLock lock(mu_);
  while (queue_.empty() && !look_for_room_ && !closing_) queued_.Wait(mu_);
  look_for_room_ = false;
  std::swap(*queue, queue_);
  if (!queue->empty() || !closing_) return true;
  writer_done_ = true;
  written_.NotifyAll();
  return false;
}

void NodeLog::WriteQueue(std::vector<Pending> queue) {
  // Looks whether there is room again; or early enough to refuse updates before they are accepted.
  if (queue.empty() || options_.accepted_is_final) static_cast<void>(EnsureSpare());
  Group group;
  absl::Status status;
  for (Pending& record : queue) {
    status = MakeRoom(record, &group);
    if (status.ok()) {
      group.Add(std::move(record));
      continue;
    }
    std::vector<Pending> refused;
    refused.push_back(std::move(record));
    Refuse(refused, status);
  }
  static_cast<void>(Flush(&group));
}

// OK: `record` may be added to `group`, which then still fits into the current segment.
absl::Status NodeLog::MakeRoom(const Pending& record, Group* group) {
  if (!record.uses_reserve) EMBLA_RETURN_IF_ERROR(EnsureSpare());
  const std::size_t bytes = record.bytes;
  if (group->bytes + bytes <= options_.group_bytes_max && segments_.Fits(group->bytes + bytes)) {
    return absl::OkStatus();
  }
  const absl::Status flushed = Flush(group);
  // A flush that was refused for want of room does not stop a record that may use the spare.
  const bool goes_on = record.uses_reserve && absl::IsResourceExhausted(flushed);
  if (!goes_on) EMBLA_RETURN_IF_ERROR(flushed);
  if (segments_.Fits(bytes)) return absl::OkStatus();
  EMBLA_RETURN_IF_ERROR(BeginSegment(record.lsn));
  return record.uses_reserve ? absl::OkStatus() : EnsureSpare();
}

absl::Status NodeLog::EnsureSpare() {
  if (segments_.has_spare()) return absl::OkStatus();
  const absl::Status status = segments_.EnsureSpare();
  bool changed = false;
  {
    const MutexLock lock(mu_);
    changed = disk_full_ == status.ok();
    disk_full_ = !status.ok();
  }
  if (status.ok()) {
    if (changed) LogInfo("log", "takes updates again, there is room for another segment");
    return status;
  }
  const absl::Status refused = absl::ResourceExhaustedError(
      absl::StrCat("there is no room for another segment of the log: ", status.message()));
  if (changed) LogWarning("log", "refuses updates: ", refused.message());
  return refused;
}

// Writes what is in `group`. Not OK: something of it was refused, and told.
absl::Status NodeLog::Flush(Group* group) {
  if (group->records.empty()) return absl::OkStatus();
  absl::Status status = WriteGroup(group);
  if (absl::IsResourceExhausted(status)) {
    // The spare has room of its own: for those that may use it.
    std::vector<Pending> refused;
    for (Pending& record : group->Take()) {
      if (record.uses_reserve) {
        group->Add(std::move(record));
      } else {
        refused.push_back(std::move(record));
      }
    }
    Refuse(refused, status);
    if (group->records.empty()) return status;
    const absl::Status begun = BeginSegment(group->records.front().lsn);
    status = begun.ok() ? WriteGroup(group) : begun;
  }
  if (!status.ok()) {
    Refuse(group->Take(), status);
    return status;
  }
  FinishWrite(group);
  return absl::OkStatus();
}

// The records stay in `group`.
absl::Status NodeLog::WriteGroup(Group* group) {
  RecordSeal seal{.seed = segments_.seed(), .offset = segments_.file().size()};
  {
    const MutexLock lock(mu_);
    EMBLA_RETURN_IF_ERROR(broken_);
    seal.durable_end = LogLsn{ToInt(durable_lsn_) + 1};
  }
  std::uint32_t crc = 0;
  std::size_t sealed = 0;
  std::vector<std::string_view> pieces;
  // A record is sealed when the disk is about to have it: it is in the core's caches then, and the
  // disk has the one before.
  const auto next = [&]() -> std::span<const std::string_view> {
    pieces.clear();
    if (sealed == group->records.size()) return pieces;
    Pending& record = group->records[sealed++];
    seal.lsn = record.lsn;
    crc = record.record.Seal(seal);
    seal.offset += record.bytes;
    record.record.AddPieces(&pieces);
    return pieces;
  };
  const absl::Status status = segments_.Write(group->bytes, next, crc);
  return status.ok() || absl::IsResourceExhausted(status) ? status : Break(status);
}

// The records of `group` are written.
void NodeLog::FinishWrite(Group* group) {
  std::vector<Pending> told;
  absl::Status status;
  bool wanted = false;
  begun_behind_ += group->bytes;
  for (Pending& record : group->records) record.record = {};  // Gives back the viewed memory.
  {
    const MutexLock lock(mu_);
    status = broken_;
    const bool was_behind = durable_lsn_ < written_lsn_;
    written_lsn_ = group->records.back().lsn;
    for (Pending& record : group->Take()) {
      const bool waits = record.level == Durability::kSynced && status.ok();
      wanted = wanted || waits;
      if (!waits) queued_bytes_ -= record.bytes;
      unsynced_bytes_ += record.bytes;
      (waits ? awaiting_sync_ : told).push_back(std::move(record));
    }
    sync_wanted_ = sync_wanted_ || wanted;
    if (wanted || !was_behind) written_.NotifyAll();
  }
  for (const Pending& record : told) {
    if (record.done) record.done(status);
  }
  // The disk works meanwhile, and the sync that comes, or that of a full segment, takes less long.
  if (wanted || begun_behind_ < kBeginSyncBytes) return;
  segments_.file().BeginSync();
  begun_behind_ = 0;
}

absl::Status NodeLog::BeginSegment(LogLsn first_lsn) {
  EMBLA_RETURN_IF_ERROR(WaitUntilDurable());
  const absl::Status status = segments_.Rotate(first_lsn);
  if (absl::IsResourceExhausted(status)) return status;
  if (!status.ok()) return Break(status);
  const MutexLock lock(mu_);
  file_ = &segments_.file();
  live_.push_back(segments_.header());
  note_due_ = {segments_.header().log_id, segments_.header().number, first_lsn};
  return absl::OkStatus();
}

absl::Status NodeLog::WaitUntilDurable() {
  const MutexLock lock(mu_);
  while (durable_lsn_ < written_lsn_ && broken_.ok()) {
    sync_wanted_ = true;
    written_.NotifyAll();
    synced_.Wait(mu_);
  }
  return broken_;
}

// `records` are not in the log; when it is broken, that is not certain.
void NodeLog::Refuse(const std::vector<Pending>& records, const absl::Status& status) {
  bool is_final = false;
  {
    const MutexLock lock(mu_);
    for (const Pending& record : records) {
      queued_bytes_ -= record.bytes;
      is_final = is_final || record.is_final;
    }
  }
  // Going on would leave a hole where a record was promised.
  const absl::Status told = is_final ? Break(status) : status;
  for (const Pending& record : records) {
    if (record.done) record.done(told);
  }
}

}  // namespace embla
