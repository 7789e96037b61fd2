#include "server/log/node_log.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/log/log_note.h"
#include "server/log/testing/log_model.h"
#include "server/log/testing/simulated_storage.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Gate = SimulatedStorage::Gate;

// The result that one record's callback got.
class Told {
 public:
  LogDone Callback() {
    return [this](const absl::Status& status) {
      const MutexLock lock(mu_);
      status_ = status;
      ++count_;
      told_.NotifyAll();
    };
  }
  bool yet() const {
    const MutexLock lock(mu_);
    return count_ > 0;
  }
  absl::StatusCode Wait() {
    const MutexLock lock(mu_);
    while (count_ == 0) told_.Wait(mu_);
    EXPECT_EQ(count_, 1);
    return status_.code();
  }

 private:
  mutable Mutex mu_;
  CondVar told_;
  int count_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

class NodeLogTest : public ::testing::Test {
 protected:
  NodeLogTest() {
    options_.segment_bytes_max = 1024;
    options_.sync_delay = absl::InfiniteDuration();
  }

  absl::Status TryOpen() {
    replayed_.clear();
    auto log = NodeLog::Open(disk_, options_, [this](const LogRecordView& record) {
      replayed_.emplace_back(record.payload);
      return absl::OkStatus();
    });
    if (log.ok()) log_ = *std::move(log);
    return log.status();
  }
  void Open() {
    const absl::Status status = TryOpen();
    ASSERT_THAT(status, IsOk());
  }
  void Close() {
    EXPECT_THAT(log_->Close(), IsOk());
    log_.reset();
  }
  void WriteControls(const std::vector<std::string>& payloads) {
    for (const std::string& payload : payloads) ASSERT_THAT(log_->WriteControl(1, payload), IsOk());
  }
  absl::StatusCode Update(Durability level, const std::string& payload) {
    Told told;
    const auto lsn = log_->AppendUpdate(level, 1, payload, told.Callback());
    return lsn.ok() ? told.Wait() : lsn.status().code();
  }
  std::string Content(std::uint64_t segment) const { return *disk_.Read(SegmentName(segment)); }

  NodeLogOptions options_;
  SimulatedStorage disk_;
  std::vector<std::string> replayed_;
  std::unique_ptr<NodeLog> log_;
};

TEST_F(NodeLogTest, ReplaysWhatWasWrittenInItsOrder) {
  Open();
  WriteControls({"a", "b"});
  EXPECT_EQ(Update(Durability::kQueued, "c"), absl::StatusCode::kOk);
  EXPECT_EQ(Update(Durability::kWritten, std::string(200, '\0')), absl::StatusCode::kOk);
  Close();
  Open();
  EXPECT_THAT(replayed_, ElementsAre("a", "b", "c", std::string(200, '\0')));
  EXPECT_EQ(log_->recovery().records, 4u);
  EXPECT_EQ(log_->recovery().torn_file, "");
}

TEST_F(NodeLogTest, EachLevelIsToldWhenItIsReached) {
  Open();
  disk_.Hold(Gate::kWrite);
  disk_.Hold(Gate::kSync);
  Told none, queued, written, synced, control;
  EXPECT_EQ(*log_->AppendUpdate(Durability::kNone, 1, "0", none.Callback()), LogLsn{0});
  EXPECT_TRUE(none.yet());
  EXPECT_EQ(*log_->AppendUpdate(Durability::kQueued, 1, "1", queued.Callback()), LogLsn{1});
  EXPECT_TRUE(queued.yet());
  EXPECT_EQ(*log_->AppendUpdate(Durability::kWritten, 1, "2", written.Callback()), LogLsn{2});
  EXPECT_EQ(*log_->AppendUpdate(Durability::kSynced, 1, "3", synced.Callback()), LogLsn{3});
  EXPECT_EQ(*log_->AppendControl(1, "4", control.Callback()), LogLsn{4});
  EXPECT_FALSE(written.yet());
  disk_.Release(Gate::kWrite);
  EXPECT_EQ(written.Wait(), absl::StatusCode::kOk);
  EXPECT_FALSE(synced.yet() || control.yet());
  disk_.Release(Gate::kSync);
  EXPECT_EQ(synced.Wait(), absl::StatusCode::kOk);
  EXPECT_EQ(control.Wait(), absl::StatusCode::kOk);
  EXPECT_EQ(log_->durable_lsn(), LogLsn{4});
}

TEST_F(NodeLogTest, ThoseWhoWaitShareASync) {
  options_.segment_bytes_max = 1 << 20;
  Open();
  const std::uint64_t before = disk_.syncs();
  disk_.Hold(Gate::kSync);
  std::vector<Told> told(500);
  for (Told& one : told) {
    ASSERT_THAT(log_->AppendUpdate(Durability::kSynced, 1, "row", one.Callback()), IsOk());
  }
  EXPECT_EQ(Update(Durability::kWritten, "behind them"), absl::StatusCode::kOk);
  EXPECT_EQ(log_->queued_bytes(), 500 * RecordBytes(3));
  disk_.Release(Gate::kSync);
  for (Told& one : told) EXPECT_EQ(one.Wait(), absl::StatusCode::kOk);
  EXPECT_LE(disk_.syncs() - before, 2u);  // The one that was held, and one for all others.
}

TEST_F(NodeLogTest, KeepsWhatARecordViewsUntilItIsWrittenAndNotUntilItIsSynced) {
  Open();
  disk_.Hold(Gate::kWrite);
  disk_.Hold(Gate::kSync);
  const auto content = std::make_shared<const std::string>(300, 'v');
  Told told;
  ASSERT_THAT(log_->AppendUpdate(Durability::kSynced, 1,
                                 LogPayload::Behind(std::string(kRecordHeaderBytes, '\0'),
                                                    {{kRecordHeaderBytes, *content}}, content),
                                 told.Callback()),
              IsOk());
  EXPECT_EQ(content.use_count(), 2);
  disk_.Release(Gate::kWrite);
  AwaitFor([&] { return content.use_count() == 1; }, absl::Seconds(60), "the memory is given back");
  EXPECT_FALSE(told.yet());
  EXPECT_GT(log_->queued_bytes(), 0u);
  disk_.Release(Gate::kSync);
  EXPECT_EQ(told.Wait(), absl::StatusCode::kOk);
  Close();
  Open();
  EXPECT_THAT(replayed_, ElementsAre(*content));
}

TEST_F(NodeLogTest, WhatNobodyWaitsForIsSyncedAfterTheDelay) {
  options_.sync_delay = absl::ZeroDuration();
  Open();
  const std::uint64_t before = disk_.syncs();
  EXPECT_EQ(Update(Durability::kWritten, "row"), absl::StatusCode::kOk);
  disk_.WaitForSyncs(before + 1);
}

TEST_F(NodeLogTest, RefusesUpdatesBeyondTheQueueAndStillTakesControlRecords) {
  options_.queue_bytes_max = 2000;
  Open();
  disk_.Hold(Gate::kWrite);
  std::vector<std::unique_ptr<Told>> told;
  absl::Status status;
  while (status.ok()) {
    auto one = std::make_unique<Told>();
    status = log_->AppendUpdate(Durability::kWritten, 1, std::string(100, 'x'), one->Callback())
                 .status();
    if (status.ok()) told.push_back(std::move(one));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(told.size(), 2000u / RecordBytes(100));
  EXPECT_LE(log_->queued_bytes(), 2000u);
  Told control;
  EXPECT_THAT(log_->AppendControl(1, std::string(100, 'c'), control.Callback()), IsOk());
  disk_.Release(Gate::kWrite);
  for (const auto& one : told) EXPECT_EQ(one->Wait(), absl::StatusCode::kOk);
  EXPECT_EQ(control.Wait(), absl::StatusCode::kOk);
  EXPECT_EQ(log_->queued_bytes(), 0u);
}

TEST_F(NodeLogTest, SlowsQueuedUpdatesDownBeforeItRefusesThem) {
  options_.queue_bytes_max = 2000;
  Open();
  disk_.Hold(Gate::kWrite);
  std::vector<std::unique_ptr<Told>> told;
  for (std::size_t bytes = 0; bytes + RecordBytes(100) <= 2000; bytes += RecordBytes(100)) {
    told.push_back(std::make_unique<Told>());
    ASSERT_THAT(
        log_->AppendUpdate(Durability::kQueued, 1, std::string(100, 'x'), told.back()->Callback()),
        IsOk());
    EXPECT_EQ(told.back()->yet(), told.size() * RecordBytes(100) <= 1000) << told.size();
  }
  disk_.Release(Gate::kWrite);
  for (const auto& one : told) EXPECT_EQ(one->Wait(), absl::StatusCode::kOk);
}

TEST_F(NodeLogTest, RefusesARecordLargerThanASegment) {
  Open();
  const std::string largest(log_->payload_bytes_max(), 'x');
  EXPECT_EQ(Update(Durability::kSynced, largest + "x"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Update(Durability::kSynced, largest), absl::StatusCode::kOk);
}

TEST_F(NodeLogTest, ACallbackMayAppend) {
  Open();
  Told second;
  ASSERT_THAT(log_->AppendControl(1, "a",
                                  [&](const absl::Status&) {
                                    EXPECT_THAT(log_->AppendControl(1, "b", second.Callback()),
                                                IsOk());
                                  }),
              IsOk());
  EXPECT_EQ(second.Wait(), absl::StatusCode::kOk);
}

TEST_F(NodeLogTest, AFailedSyncEndsWritingUntilTheNextOpening) {
  Open();
  WriteControls({"a"});
  disk_.FailAt(2, DiskFault::kError);  // A write, then its sync.
  EXPECT_EQ(log_->WriteControl(1, "b").status().code(), absl::StatusCode::kUnavailable);
  for (const Durability level : {Durability::kQueued, Durability::kWritten, Durability::kSynced}) {
    EXPECT_EQ(Update(level, "c"), absl::StatusCode::kUnavailable);
  }
  EXPECT_EQ(log_->Truncate(LogLsn{2}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(log_->Close().code(), absl::StatusCode::kUnavailable);
  log_.reset();
  Open();
  EXPECT_EQ(replayed_.front(), "a");
  EXPECT_EQ(Update(Durability::kSynced, "d"), absl::StatusCode::kOk);
}

TEST_F(NodeLogTest, AClosedLogTakesNothing) {
  Open();
  WriteControls({"a"});
  EXPECT_THAT(log_->Close(), IsOk());
  EXPECT_EQ(Update(Durability::kQueued, "b"), absl::StatusCode::kUnavailable);
  EXPECT_THAT(log_->Close(), IsOk());
}

// --- A full disk.

class FullDisk : public NodeLogTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Disk, FullDisk, ::testing::Bool(), [](const auto& info) {
  return info.param ? "ThatReserves" : "ThatPromisesNothing";
});

TEST_P(FullDisk, RefusesUpdatesLosesNothingAndHeals) {
  constexpr std::uint64_t kCapacity = 5000;
  Open();
  disk_.SetCapacity(kCapacity, GetParam());
  std::vector<std::string> accepted;
  absl::StatusCode code = absl::StatusCode::kOk;
  for (int i = 0; code == absl::StatusCode::kOk; ++i) {
    const std::string payload = std::to_string(i) + std::string(150, 'x');
    code = Update(i % 2 == 0 ? Durability::kSynced : Durability::kWritten, payload);
    if (code == absl::StatusCode::kOk) accepted.push_back(payload);
    ASSERT_LT(i, 100);
  }
  EXPECT_EQ(code, absl::StatusCode::kResourceExhausted);
  EXPECT_GT(accepted.size(), 10u);
  if (GetParam()) {
    WriteControls({"freeze"});  // There is room for these.
    accepted.push_back("freeze");
    EXPECT_EQ(Update(Durability::kQueued, "y"), absl::StatusCode::kResourceExhausted);
  }
  disk_.SetCapacity(100'000);
  EXPECT_EQ(Update(Durability::kSynced, "after"), absl::StatusCode::kOk);
  accepted.push_back("after");
  std::mt19937_64 random(3);
  log_.reset();
  disk_.LosePower(random);
  Open();
  EXPECT_EQ(replayed_, accepted);
}

TEST_F(NodeLogTest, WhereAcceptedIsFinalAFullDiskIsFoundByTheAppend) {
  options_.accepted_is_final = true;
  Open();
  disk_.SetCapacity(5000);
  std::vector<std::string> accepted;
  for (int i = 0; i < 100; ++i) {
    const std::string payload = std::to_string(i) + std::string(150, 'x');
    Told told;
    if (!log_->AppendUpdate(Durability::kWritten, 1, payload, told.Callback()).ok()) break;
    ASSERT_EQ(told.Wait(), absl::StatusCode::kOk);
    accepted.push_back(payload);
  }
  EXPECT_GT(accepted.size(), 10u);
  EXPECT_LT(accepted.size(), 100u);
  disk_.SetCapacity(100'000);
  // The writer looks whether there is room when an update is refused for want of it.
  AwaitFor([&] { return Update(Durability::kWritten, "after") == absl::StatusCode::kOk; },
           absl::Seconds(60), "the writer notices that there is room");
  accepted.push_back("after");
  Close();
  Open();
  EXPECT_EQ(replayed_, accepted);
}

TEST_F(NodeLogTest, ALogOfQueuedUpdatesAloneNoticesThatThereIsRoomAgain) {
  Open();
  disk_.SetCapacity(0);
  EXPECT_EQ(Update(Durability::kWritten, "a"), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Update(Durability::kQueued, "b"), absl::StatusCode::kResourceExhausted);
  disk_.SetCapacity(100'000);
  AwaitFor([&] { return Update(Durability::kQueued, "c") == absl::StatusCode::kOk; },
           absl::Seconds(60), "the writer notices that there is room");
  Close();
  Open();
  EXPECT_THAT(replayed_, ElementsAre("c"));
}

// --- Truncation.

TEST_F(NodeLogTest, TruncateRemovesSegmentsThatNobodyNeeds) {
  Open();
  const std::string payload(300, 'p');  // Two to a segment.
  WriteControls({payload + "1", payload + "2", payload + "3", payload + "4", payload + "5"});
  ASSERT_EQ(log_->segment_count(), 3u);
  EXPECT_THAT(log_->Truncate(LogLsn{4}), IsOk());
  EXPECT_EQ(log_->segment_count(), 2u);
  EXPECT_EQ(disk_.Read(SegmentName(1)).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(log_->Truncate(LogLsn{2}), IsOk());  // Lower than before.
  EXPECT_EQ(log_->Truncate(LogLsn{100}).code(), absl::StatusCode::kInvalidArgument);
  Close();
  EXPECT_THAT(TryOpen(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(replayed_, ElementsAre());
  options_.needed_from = LogLsn{5};
  Open();
  EXPECT_THAT(replayed_, ElementsAre(payload + "5"));
  Close();
  options_.needed_from = LogLsn{4};
  Open();
  EXPECT_THAT(replayed_, ElementsAre(payload + "4", payload + "5"));
  EXPECT_EQ(log_->recovery().keep_from, LogLsn{4});
}

TEST_F(NodeLogTest, WhatAnInterruptedTruncationLeftIsRemovedAtTheNextOpening) {
  Open();
  const std::string payload(800, 'p');  // One to a segment, and a mark.
  WriteControls({payload, payload, payload, payload});
  disk_.FailAt(4, DiskFault::kError);  // Write, sync, remove, remove.
  EXPECT_EQ(log_->Truncate(LogLsn{4}).code(), absl::StatusCode::kUnavailable);
  disk_.Restart();
  EXPECT_EQ(Update(Durability::kSynced, "on"), absl::StatusCode::kOk);
  Close();
  EXPECT_THAT(disk_.Read(SegmentName(2)), IsOk());
  disk_.Overwrite(SegmentName(2), "nobody reads this");
  options_.needed_from = LogLsn{4};
  Open();
  EXPECT_THAT(replayed_, ElementsAre(payload, "on"));
  EXPECT_THAT(disk_.Read(SegmentName(2)), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(NodeLogTest, OlderSegmentsThatNoMarkGivesUpStay) {
  Open();
  const std::string payload(800, 'p');  // One to a segment.
  WriteControls({payload, payload, payload, payload});
  log_.reset();
  const std::string damaged = "nobody reads this";
  disk_.Overwrite(SegmentName(2), damaged);
  EXPECT_THAT(TryOpen(), StatusIs(absl::StatusCode::kDataLoss));
  options_.needed_from = LogLsn{4};
  Open();
  EXPECT_THAT(replayed_, ElementsAre(payload));
  EXPECT_THAT(disk_.Read(SegmentName(1)), IsOk());
  EXPECT_EQ(Content(2), damaged);
  // The next truncation gives them up, and the next start finds that.
  EXPECT_THAT(log_->Truncate(LogLsn{4}), IsOk());
  Close();
  Open();
  EXPECT_THAT(disk_.Read(SegmentName(1)), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(disk_.Read(SegmentName(2)), StatusIs(absl::StatusCode::kNotFound));
}

// --- Damage.

class NodeLogDamage : public NodeLogTest {
 protected:
  void SetUp() override {
    Open();
    const std::string payload(300, 'p');
    WriteControls({payload + "1", payload + "2", payload + "3"});
    log_.reset();
  }
  // Opening says DataLoss with `expected`, and changes nothing.
  void ExpectDataLoss(const std::string& expected) {
    const std::vector<std::string> names = *disk_.List();
    std::vector<std::string> before;
    for (const std::string& name : names) before.push_back(*disk_.Read(name));
    disk_.FailAt(0, DiskFault::kError);
    const absl::Status status = TryOpen();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected));
    EXPECT_LT(replayed_.size(), 3u);
    EXPECT_EQ(disk_.operations(), 0u);
    EXPECT_EQ(*disk_.List(), names);
    for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(*disk_.Read(names[i]), before[i]);
  }
};

TEST_F(NodeLogDamage, AFlippedBitInAnySegmentIsDataLoss) {
  for (const std::uint64_t segment : {1, 2}) {
    const std::string good = Content(segment);
    std::string bad = good;
    bad[200] = static_cast<char>(bad[200] ^ 16);
    disk_.Overwrite(SegmentName(segment), bad);
    ExpectDataLoss("disk/" + SegmentName(segment) + " is corrupt at offset 56");
    disk_.Overwrite(SegmentName(segment), good);
  }
  Open();
}

TEST_F(NodeLogDamage, ASegmentCutAtTheEndOfARecordIsDataLoss) {
  const std::size_t first = kSegmentHeaderBytes + RecordBytes(301);
  disk_.Overwrite(SegmentName(1), Content(1).substr(0, first));
  ExpectDataLoss("disk/" + SegmentName(1) + " is corrupt at offset " + std::to_string(first));
}

TEST_F(NodeLogDamage, AMissingSegmentIsDataLoss) {
  ASSERT_THAT(disk_.Remove(SegmentName(1)), IsOk());
  ExpectDataLoss("disk/" + SegmentName(1) + " is missing, at offset 0");
}

TEST_F(NodeLogDamage, ASegmentOfAnotherPlaceIsDataLoss) {
  disk_.Overwrite(SegmentName(1), Content(2));
  ExpectDataLoss("disk/" + SegmentName(1) + " is corrupt at offset 0");
}

// The marks of a clean stop tell it from the torn tail that it would be after a crash.
TEST_F(NodeLogDamage, ALostSectorOfALogThatWasClosedIsDataLoss) {
  std::string bad = Content(2);
  bad.replace(60, 300, 300, '\0');
  disk_.Overwrite(SegmentName(2), bad);
  ExpectDataLoss("disk/" + SegmentName(2) + " is corrupt at offset 56");
}

TEST_F(NodeLogDamage, ATornTailIsDroppedAndReported) {
  // After a crash nothing says how far it had come.
  ASSERT_THAT(disk_.Remove(std::string(kNoteName)), IsOk());
  const std::string whole = Content(2);
  const std::size_t size = kSegmentHeaderBytes + RecordBytes(301) - 5;
  disk_.Overwrite(SegmentName(2), whole.substr(0, size));
  Open();
  EXPECT_EQ(replayed_.size(), 2u);
  EXPECT_EQ(log_->recovery().torn_file, "disk/" + SegmentName(2));
  EXPECT_EQ(log_->recovery().torn_offset, kSegmentHeaderBytes);
  EXPECT_EQ(log_->recovery().torn_bytes, size - kSegmentHeaderBytes);
  WriteControls({"after"});
  Close();
  Open();
  EXPECT_EQ(replayed_.back(), "after");
}

TEST_F(NodeLogDamage, AnErrorOfTheSinkStopsTheOpening) {
  const auto log = NodeLog::Open(
      disk_, options_, [](const LogRecordView&) { return absl::CancelledError("enough"); });
  EXPECT_EQ(log.status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace embla
