// Files of snapshots: what a start does without one of them, what a failure leaves, and that the
// directory does not grow with what was ever trained. (snapshot_content_test.cc: what they say of a
// node. That the rows are the same bits, whenever snapshots are taken and processes die, is shown
// by node_journal_test, unit_recovery_test and copies_recovery_test.)
#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/journal/testing/journaled_node.h"
#include "server/journal/testing/slow_snapshot.h"
#include "server/journal/testing/snapshots_fixture.h"
#include "server/shard/testing/row_images.h"

namespace embla::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A base and two snapshots of changes, each a little after the one before.
TEST_F(SnapshotsTest, AStartGoesOnFromTheSnapshotBeforeADamagedOne) {
  options_.journal.snapshots.changes_share = 10;
  Start(/*rows=*/6000);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 6; ++i) ASSERT_THAT(AddOne(round * 500 + i * 800, 800), IsOk());
    ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
  }
  ASSERT_THAT(AddOne(500, 800), IsOk());
  const std::vector<NodeRows> expected = Rows();
  KillAndStart();
  EXPECT_EQ(subject_->journal().recovery().snapshot, 3u);
  EXPECT_EQ(subject_->journal().recovery().updates, 1u);
  EXPECT_EQ(Rows(), expected);
  EXPECT_EQ(subject_->nodes_made(), 1);
  subject_->Kill();
  const std::vector<std::string> files = FilesOf(3);
  ASSERT_GT(files.size(), 4u);
  std::map<std::string, std::string> whole;  // A start removes what is damaged.
  for (const std::string& file : files) whole[file] = *subject_->disk().Read(file);
  int spoiled = 0;
  for (const std::string& file : files) {
    SCOPED_TRACE(file);
    for (const auto& [name, content] : whole) subject_->disk().Overwrite(name, content);
    Damage(file);
    subject_->Start();
    EXPECT_EQ(subject_->journal().recovery().snapshot, 2u);
    EXPECT_EQ(subject_->journal().recovery().updates, 7u);
    EXPECT_EQ(Rows(), expected);
    spoiled += subject_->nodes_made() - 1;
    subject_->Kill();
  }
  // Damage to head and end shows before rows are written.
  EXPECT_GT(spoiled, 1);
  EXPECT_LT(spoiled, static_cast<int>(files.size()) - 1);
}

TEST_F(SnapshotsTest, WithoutABaseAStartSaysWhatIsMissing) {
  Start(/*rows=*/600);
  ASSERT_THAT(AddOne(0, 600), IsOk());
  ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
  ASSERT_THAT(AddOne(0, 600), IsOk());
  subject_->Stop();
  for (const std::string& file : FilesOf(1)) {
    SCOPED_TRACE(file);
    const std::string content = *subject_->disk().Read(file);
    Damage(file);
    const absl::Status started = subject_->TryStart();
    EXPECT_TRUE(absl::IsDataLoss(started)) << started;
    EXPECT_THAT(started.message(), HasSubstr("snapshot"));
    subject_->disk().Overwrite(file, content);
  }
  for (const std::string& file : FilesOf(1)) ASSERT_THAT(subject_->disk().Remove(file), IsOk());
  const absl::Status started = subject_->TryStart();
  EXPECT_TRUE(absl::IsDataLoss(started)) << started;
}

// Also while one is written, and whatever of it a full disk leaves.
TEST_F(SnapshotsTest, ASnapshotThatFindsNoRoomLeavesEverythingAsItWas) {
  Start(/*rows=*/600);
  ASSERT_THAT(AddOne(0, 600), IsOk());
  ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
  ASSERT_THAT(AddOne(0, 10), IsOk());
  // With room for what it begins with.
  subject_->disk().SetCapacity(subject_->disk().bytes() + 3 * kSegmentBytes + 1000,
                               /*reserves=*/false);
  options_.journal.snapshots.changes_share = 0;
  for (int i = 0; i < 3; ++i) ASSERT_THAT(AddOne(0, 600), IsOk());
  const absl::Status taken = subject_->TakeSnapshot();
  EXPECT_TRUE(absl::IsResourceExhausted(taken)) << taken;
  EXPECT_TRUE(FilesOf(2).empty());
  subject_->disk().SetCapacity(1 << 24);
  const std::vector<NodeRows> expected = Rows();
  KillAndStart();
  EXPECT_EQ(Rows(), expected);
  ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
}

// The older snapshot stays in force, and the node serves on: only where it was the journal's write
// that failed it takes no updates any more.
TEST_F(SnapshotsTest, AWriteErrorOfASnapshotLeavesTheOneBeforeInForce) {
  options_.journal.snapshots.changes_share = 10;
  bool is_taken = false;
  int served_on = 0;
  int log_broken = 0;
  for (std::uint64_t operation = 1; !is_taken && !HasFailure(); ++operation) {
    SCOPED_TRACE(operation);
    Start(/*rows=*/600);
    ASSERT_THAT(AddOne(0, 600), IsOk());
    ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
    ASSERT_THAT(AddOne(0, 600), IsOk());
    const std::vector<NodeRows> expected = Rows();
    subject_->disk().FailAt(operation, DiskFault::kError);
    const absl::Status taken = subject_->TakeSnapshot();
    is_taken = taken.ok();
    if (is_taken) break;
    EXPECT_TRUE(absl::IsUnavailable(taken)) << taken;
    KillAndStart();
    EXPECT_EQ(Rows(), expected);
    const bool was_published = subject_->journal().recovery().snapshot == 2;
    EXPECT_TRUE(was_published || subject_->journal().recovery().snapshot == 1);
    // The same again, and the process lives.
    Start(/*rows=*/600);
    ASSERT_THAT(AddOne(0, 600), IsOk());
    ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
    ASSERT_THAT(AddOne(0, 600), IsOk());
    subject_->disk().FailAt(operation, DiskFault::kError);
    ASSERT_TRUE(absl::IsUnavailable(subject_->TakeSnapshot()));
    EXPECT_EQ(Rows(), expected);
    if (!AddOne(0, 10).ok()) {
      ++log_broken;
      continue;
    }
    ++served_on;
    ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
    const std::vector<NodeRows> after = Rows();
    KillAndStart();
    EXPECT_EQ(Rows(), after);
  }
  EXPECT_GT(served_on, 5);
  EXPECT_LT(log_broken, served_on);
}

// Every read of a start fails once, as on a bad sector: the start goes on from what else is there,
// with all rows, or is refused and names the file; and nothing is lost for the next one.
TEST_F(SnapshotsTest, AReadThatFailsLosesNothing) {
  options_.journal.snapshots.changes_share = 10;
  Start(/*rows=*/2000);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 3; ++i) ASSERT_THAT(AddOne(round * 300 + i * 400, 700), IsOk());
    ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
  }
  ASSERT_THAT(AddOne(500, 800), IsOk());
  const std::vector<NodeRows> expected = Rows();
  subject_->Kill();
  std::map<std::string, std::string> whole;
  for (const std::string& file : Files()) {
    whole[file] = *subject_->disk().Read(file);
  }
  int went_on = 0;
  int refused = 0;
  for (std::uint64_t read = 1;; ++read) {
    SCOPED_TRACE(read);
    for (const std::string& file : Files()) {
      if (whole.contains(file)) continue;
      ASSERT_THAT(subject_->disk().Remove(file), IsOk());
    }
    for (const auto& [name, content] : whole) subject_->disk().Overwrite(name, content);
    subject_->disk().FailReadAt(read);
    const absl::Status started = subject_->TryStart();
    const bool has_failed = subject_->disk().reads() >= read;
    subject_->disk().FailReadAt(0);
    if (started.ok()) {
      EXPECT_EQ(Rows(), expected);
      ++went_on;
    } else {
      EXPECT_THAT(started.message(), HasSubstr("cannot read simulated file "));
      ++refused;
    }
    subject_->Kill();
    subject_->Start();
    ASSERT_EQ(Rows(), expected);
    subject_->Kill();
    if (!has_failed) break;
  }
  EXPECT_GT(went_on, 1);
  EXPECT_GT(refused, 1);
}

// Without another snapshot to go on from, a start names the file that the disk does not give back.
TEST_F(SnapshotsTest, AReadThatFailsOfTheOnlySnapshotIsNamed) {
  Start(/*rows=*/600);
  ASSERT_THAT(AddOne(0, 600), IsOk());
  ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
  ASSERT_THAT(AddOne(0, 600), IsOk());
  const std::vector<NodeRows> expected = Rows();
  subject_->Kill();
  for (std::uint64_t read = 1; !HasFailure(); ++read) {
    SCOPED_TRACE(read);
    subject_->disk().FailReadAt(read);
    const absl::Status started = subject_->TryStart();
    const bool has_failed = subject_->disk().reads() >= read;
    subject_->disk().FailReadAt(0);
    if (!has_failed) break;
    EXPECT_THAT(started, Not(IsOk()));
    EXPECT_THAT(started.message(), HasSubstr("cannot read simulated file "));
  }
  subject_->Start();
  EXPECT_EQ(Rows(), expected);
}

TEST_F(SnapshotsTest, AChainEndsBeforeASnapshotThatIsMissing) {
  options_.journal.snapshots.changes_share = 10;
  Start(/*rows=*/600);
  for (int round = 0; round < 3; ++round) {
    ASSERT_THAT(AddOne(round * 100, 250), IsOk());
    ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
  }
  subject_->Stop();
  for (const std::string& file : FilesOf(2)) ASSERT_THAT(subject_->disk().Remove(file), IsOk());
  const absl::Status started = subject_->TryStart();
  EXPECT_TRUE(absl::IsDataLoss(started)) << started;  // The journal goes back to snapshot 2.
}

// Rows that a failed snapshot has read have not changed since.
TEST_F(SnapshotsTest, ABaseFollowsASnapshotThatFailed) {
  options_.journal.snapshots.changes_share = 10;
  bool is_taken = false;
  int failed = 0;
  for (std::uint64_t operation = 1; !is_taken && !HasFailure(); ++operation) {
    SCOPED_TRACE(operation);
    Start(/*rows=*/600);
    ASSERT_THAT(AddOne(0, 600), IsOk());
    ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
    ASSERT_THAT(AddOne(0, 600), IsOk());
    subject_->disk().FailAt(operation, DiskFault::kFull);
    is_taken = subject_->TakeSnapshot().ok();
    if (!AddOne(0, 10).ok()) continue;  // It was a write of the journal that failed.
    ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
    failed += is_taken ? 0 : 1;
    const std::vector<NodeRows> expected = Rows();
    KillAndStart();
    EXPECT_EQ(subject_->journal().recovery().updates, 0u);
    EXPECT_TRUE(Rows() == expected);
  }
  EXPECT_GT(failed, 1);
}

// Power is lost after a start that gave up the snapshot before: a process may have died when it had
// written all of the next one, and synced nothing yet.
TEST_F(SnapshotsTest, AStartSyncsASnapshotBeforeItGivesUpTheOneBefore) {
  options_.journal.level = Durability::kSynced;
  options_.journal.snapshots.changes_share = 0;
  std::mt19937_64 power(7);
  bool is_taken = false;
  for (std::uint64_t operation = 1; !is_taken && !HasFailure(); ++operation) {
    SCOPED_TRACE(operation);
    Start(/*rows=*/600);
    ASSERT_THAT(AddOne(0, 600), IsOk());
    ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
    ASSERT_THAT(AddOne(0, 300), IsOk());
    const std::vector<NodeRows> expected = Rows();
    subject_->disk().FailAt(operation, DiskFault::kDeath);
    is_taken = subject_->TakeSnapshot().ok();
    KillAndStart();
    EXPECT_TRUE(Rows() == expected);
    subject_->Kill();
    subject_->disk().LosePower(power);
    ASSERT_THAT(subject_->TryStart(), IsOk());
    EXPECT_TRUE(Rows() == expected);
  }
}

// All updates that the rows of a whole snapshot have are in the journal for good, or a start would
// not know that they were applied. The process dies anywhere, then power is lost.
TEST_F(SnapshotsTest, NoSnapshotIsAheadOfTheJournalThatIsSynced) {
  options_.journal.level = Durability::kWritten;
  std::mt19937_64 power(7);
  bool is_taken = false;
  int whole = 0;
  for (std::uint64_t operation = 1; !is_taken && !HasFailure(); ++operation) {
    SCOPED_TRACE(operation);
    Start(/*rows=*/600);
    ASSERT_THAT(AddOne(0, 600), IsOk());
    SlowSnapshot slow;
    slow.Begin(subject_->journal());
    for (int i = 0; i < 3; ++i) ASSERT_THAT(AddOne(100 * i, 100), IsOk());
    const std::vector<NodeRows> expected = Rows();
    subject_->disk().FailAt(operation, DiskFault::kDeath);
    is_taken = slow.Finish().ok();
    subject_->Kill();
    subject_->disk().LosePower(power);
    ASSERT_THAT(subject_->TryStart(), IsOk());
    if (subject_->journal().recovery().snapshot == 0) continue;
    ++whole;
    const auto again = AddOneAs(seq_ - 1, 200, 100);
    ASSERT_THAT(again, IsOk());
    EXPECT_TRUE(again->duplicate);
    EXPECT_TRUE(Rows() == expected);
  }
  EXPECT_GT(whole, 1);
}

// Updates of fifty times the table, by which nothing grows; a start finds the newest snapshot and
// little behind it. Where updates come faster than a snapshot is written, they wait.
TEST_F(SnapshotsTest, TheDirectoryHasAtMostFourTimesItsTablesAndAFewSegments) {
  constexpr std::int64_t kRows = 4096;
  constexpr std::int64_t kRowsOfUpdate = 192;
  options_.journal.snapshots.journal_bytes_min = kSegmentBytes;
  options_.journal.snapshots.growth_limit_bytes_min = kSegmentBytes;
  options_.journal.snapshots.look_every = absl::Milliseconds(1);
  Start(kRows);
  subject_->journal().StartSnapshots([](const auto& work) {
    work([] { return std::vector<RestoredUnit>(); });
    return true;
  });
  const std::uint64_t table_bytes = kRows * kDim * sizeof(float);
  std::uint64_t most = 0;
  std::uint64_t newest = 0;
  for (std::int64_t done = 0; done < 50 * kRows; done += kRowsOfUpdate) {
    absl::Status updated;
    AwaitFor(
        [&] {
          updated = AddOne(done * 7, kRowsOfUpdate);
          return !absl::IsResourceExhausted(updated);
        },
        absl::Seconds(60), "the journal takes the update");
    ASSERT_THAT(updated, IsOk());
    if (done % (10 * kRowsOfUpdate) != 0 || done == 0) continue;
    most = std::max(most, subject_->disk().bytes());
    // One is due by now. On a loaded machine the thread that begins it may be late.
    AwaitFor([&] { return NewestSnapshot() > newest; }, absl::Seconds(60), "a snapshot is begun");
    newest = NewestSnapshot();
  }
  EXPECT_LE(most, 4 * table_bytes + 6 * kSegmentBytes);
  const std::vector<NodeRows> expected = Rows();
  KillAndStart();
  EXPECT_EQ(Rows(), expected);
  const JournalRecovery& recovery = subject_->journal().recovery();
  EXPECT_GT(recovery.snapshot, 10u);
  EXPECT_LE(recovery.bytes, 2 * table_bytes);
  EXPECT_LE(recovery.snapshot_bytes, 2 * table_bytes);
}

}  // namespace
}  // namespace embla::testing
