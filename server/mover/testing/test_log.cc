#include "server/mover/testing/test_log.h"

#include <algorithm>
#include <utility>

namespace embla::testing {

absl::Status TestLog::Append(Record record) {
  if (is_full()) return absl::ResourceExhaustedError("the log is full");
  records_.push_back(std::move(record));
  return absl::OkStatus();
}

absl::Status TestLog::AppendAdopted(const UnitId& unit, UnitEpoch epoch) {
  return Append(Adopted{unit, epoch});
}

absl::Status TestLog::AppendFolded(const UnitId& unit, PlanVersion plan) {
  return Append(Folded{unit, plan});
}

absl::Status TestLog::AppendReserved(const UnitId& unit, std::uint32_t device, const RowRun& run) {
  return Append(Reserved{unit, device, run});
}

absl::Status TestLog::AppendChunk(const UnitId& unit, const Chunk& chunk,
                                  std::span<const std::byte> rows) {
  return Append(Staged{unit, chunk, {rows.begin(), rows.end()}});
}

absl::Status TestLog::AppendControl(const UnitId& unit, const LogRecord& record, Done done) {
  const absl::Status status = Append(Control{unit, record});
  if (status.ok()) waiting_.push_back({records_.size(), std::move(done)});
  return status;
}

absl::Status TestLog::AppendUpdate(Update update) { return Append(std::move(update)); }

void TestLog::WhenSynced(std::function<void()> done) {
  waiting_.push_back({records_.size(), [done = std::move(done)](const absl::Status&) { done(); }});
}

std::size_t TestLog::CountStaged() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      records_, [](const Record& record) { return std::holds_alternative<Staged>(record); }));
}

void TestLog::Sync(std::size_t records) {
  synced_ = std::min(synced_ + records, records_.size());
  while (!waiting_.empty() && waiting_.front().position <= synced_) {
    const Waiting told = std::move(waiting_.front());
    waiting_.pop_front();
    told.done(absl::OkStatus());
  }
}

void TestLog::Die(std::size_t unsynced) {
  records_.resize(std::min(synced_ + unsynced, records_.size()));
  waiting_.clear();
}

const std::vector<TestLog::Record>& TestLog::Open() {
  records_.emplace_back(ProcessBegins{});
  synced_ = records_.size();
  return records_;
}

}  // namespace embla::testing
