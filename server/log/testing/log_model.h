// A test's model of a log: every record that was accepted and the result that was reported for it.
// Checks whether a recovery fits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "gtest/gtest.h"
#include "server/log/node_log.h"

namespace embla {

// A payload as a log meets it: of zeros, of noise, of both.
inline std::string RandomPayload(std::mt19937_64& random, std::size_t bytes_max) {
  std::string payload(random() % (bytes_max + 1), '\0');
  const std::uint64_t form = random() % 3;
  for (std::size_t i = 0; i < payload.size() && form > 0; ++i) {
    if (form == 1 || i / 64 % 2 == 0) payload[i] = static_cast<char>(random());
  }
  return payload;
}

// `content`, a part of it in memory that the log is to keep as long as it reads it: afterwards it
// is overwritten.
inline LogPayload PayloadWithView(const std::string& content) {
  const auto overwrite = [](std::string* memory) {
    std::fill(memory->begin(), memory->end(), '#');
    delete memory;
  };
  const std::shared_ptr<std::string> memory(new std::string(content), overwrite);
  const std::size_t begin = content.size() / 3;
  const std::size_t end = content.size() - content.size() / 4;
  std::string own(kRecordHeaderBytes, '\0');
  own += content.substr(0, begin);
  const LogPayload::View view{own.size(), std::string_view(*memory).substr(begin, end - begin)};
  own += content.substr(end);
  return LogPayload::Behind(std::move(own), {view}, memory);
}

// Thread safety: Append and the log's callbacks may come from any thread.
class LogModel {
 public:
  struct Record {
    LogLsn lsn{};
    bool is_control = false;
    Durability level{};
    std::uint16_t kind = 0;
    std::string payload;
    std::optional<absl::StatusCode> told;
    bool is_synced = false;  // Recovered: whatever its level, it may not be lost again.
  };

  // Appends to `log` and remembers it; returns what the log answered.
  absl::Status Append(NodeLog& log, Record record) {
    auto owned = std::make_unique<Record>(std::move(record));
    Record* const entry = owned.get();
    const LogDone done = [this, entry](const absl::Status& status) {
      const MutexLock lock(mu_);
      entry->told = status.code();
      told_.NotifyAll();
    };
    const absl::StatusOr<LogLsn> lsn =
        entry->is_control
            ? log.AppendControl(entry->kind, entry->payload, done)
            : log.AppendUpdate(entry->level, entry->kind, PayloadWithView(entry->payload), done);
    if (!lsn.ok()) return lsn.status();  // In that case no callback runs.
    const MutexLock lock(mu_);
    entry->lsn = *lsn;
    records_.push_back(std::move(owned));
    return absl::OkStatus();
  }

  // Waits until every accepted record was told of; returns how many were not acknowledged.
  std::size_t WaitUntilTold() {
    const MutexLock lock(mu_);
    std::size_t failed = 0;
    for (const auto& record : records_) {
      while (!record->told) told_.Wait(mu_);
      if (*record->told != absl::StatusCode::kOk) ++failed;
    }
    return failed;
  }

  // Before a call to Truncate: it may have happened even if it fails.
  void MayTruncate(LogLsn keep_from) {
    const MutexLock lock(mu_);
    needed_from_ = std::max(needed_from_, keep_from);
  }
  // The record that a recovery begins with.
  LogLsn needed_from() const {
    const MutexLock lock(mu_);
    return needed_from_;
  }

  LogSink Sink() {
    replayed_.clear();
    return [this](const LogRecordView& view) {
      replayed_.push_back({view.lsn, view.type == LogRecordType::kControl, view.level, view.kind,
                           std::string(view.payload), std::nullopt, false});
      return absl::OkStatus();
    };
  }

  // Checks what Sink took after a crash that records of `survives` and higher outlive. Drops the
  // records that may be lost; the recovery has synced the others.
  void ExpectRecovered(const LogRecovery& report, Durability survives) {
    const MutexLock lock(mu_);
    std::sort(records_.begin(), records_.end(),
              [](const auto& a, const auto& b) { return a->lsn < b->lsn; });
    ASSERT_LE(report.keep_from, needed_from_);
    ASSERT_EQ(report.records, replayed_.size());
    std::size_t next = 0;
    for (const auto& record : records_) {
      const bool acknowledged = record->told == absl::StatusCode::kOk;
      const bool refused = record->told == absl::StatusCode::kResourceExhausted;
      if (record->lsn < needed_from_) continue;
      if (record->lsn >= report.next_lsn) {
        ASSERT_FALSE(acknowledged && (record->level >= survives || record->is_synced))
            << "lost " << ToUint(record->lsn) << " of level " << int(record->level);
        continue;
      }
      if (refused) continue;
      ASSERT_LT(next, replayed_.size()) << "hole at " << ToUint(record->lsn);
      const Record& got = replayed_[next++];
      ASSERT_EQ(got.lsn, record->lsn) << "hole";
      ASSERT_EQ(got.is_control, record->is_control);
      ASSERT_EQ(got.level, record->level);
      ASSERT_EQ(got.kind, record->kind);
      ASSERT_EQ(got.payload, record->payload);
    }
    ASSERT_EQ(next, replayed_.size()) << "more than was written";
    // LSNs that were given up, and then lost, are given again.
    needed_from_ = std::min(needed_from_, report.next_lsn);
    std::erase_if(records_, [&](const auto& record) {
      return record->lsn >= report.next_lsn || record->lsn < needed_from_ ||
             record->told == absl::StatusCode::kResourceExhausted;
    });
    for (const auto& record : records_) {
      record->told = absl::StatusCode::kOk;
      record->is_synced = true;
    }
  }

  std::size_t size() const {
    const MutexLock lock(mu_);
    return records_.size();
  }

 private:
  static std::uint64_t ToUint(LogLsn lsn) { return static_cast<std::uint64_t>(lsn); }

  mutable Mutex mu_;
  CondVar told_;
  std::vector<std::unique_ptr<Record>> records_ ABSL_GUARDED_BY(mu_);
  LogLsn needed_from_ ABSL_GUARDED_BY(mu_){1};
  std::vector<Record> replayed_;  // Used by the test's thread only.
};

}  // namespace embla
