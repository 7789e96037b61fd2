// Snapshots of a node: what a start needs of them, what it does without, and that the directory
// does not grow with what was ever trained. (That the rows are the same bits, whenever snapshots
// are taken and processes die, is shown by node_journal_test, unit_recovery_test and
// copies_recovery_test.)
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "core/planner/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/journal/snapshot_files.h"
#include "server/journal/testing/journaled_node.h"
#include "server/journal/testing/slow_snapshot.h"
#include "server/shard/testing/local_cluster.h"
#include "server/shard/testing/row_images.h"
#include "server/shard/testing/unit_moves.h"

namespace embla::testing {
namespace {

using ::testing::HasSubstr;

constexpr TableId kTable{1};
constexpr NodeId kSelf{1};
constexpr std::uint32_t kDim = 64;
constexpr std::uint64_t kSegmentBytes = 1 << 18;

class SnapshotsTest : public ::testing::Test {
 protected:
  void Start(std::int64_t rows) {
    node_.id = kSelf;
    node_.name = "n0";
    node_.address = "127.0.0.1:1";
    node_.devices.resize(2, DeviceSpec{DeviceKind::kCpu, std::int64_t{1} << 26});
    options_.node.name = node_.name;
    options_.node.devices = node_.devices;
    options_.journal.log.segment_bytes_max = kSegmentBytes;
    table_.id = kTable;
    table_.name = "t";
    table_.rows = rows;
    table_.dim = kDim;
    table_.row_granules = table_.zch.has_value() ? table_.zch->buckets : 8;
    table_.optimizer.kind = OptimizerKind::kSgd;
    table_.optimizer.learning_rate = 1.0f;
    table_.SetDefaults();
    const absl::StatusOr<TablePlan> table =
        PlaceTable(table_, {.sharding = ShardingType::kRowWise}, {node_}, {});
    ASSERT_THAT(table, IsOk());
    subject_ = std::make_unique<JournaledNode>(options_);
    const absl::Status installed = subject_->node().InstallPlan(
        std::make_shared<const Plan>(PlanVersion{1}, "test", std::vector{node_},
                                     std::vector{*table}),
        kSelf);
    ASSERT_THAT(installed, IsOk());
  }

  // Adds 1 to `count` rows from `first` on.
  absl::Status AddOne(std::int64_t first, std::int64_t count) {
    UpdatePartData data;
    data.part.table = kTable;
    data.part.column_end = kDim;
    const std::int64_t ids = table_.zch.has_value() ? 1000 : table_.rows;
    for (std::int64_t i = 0; i < count; ++i) data.ids.push_back(RowId{(first + i) % ids});
    data.gradients =
        EncodeRows(std::vector<float>(data.ids.size() * kDim, -1.0f), kDim, DType::kFloat32);
    UpdateBatch header;
    header.session = SessionId{1};
    header.seq = header.first_incomplete = UpdateSeq{seq_};
    header.step = seq_;
    Packed<UpdateBatch> request = Pack(header, {data});
    const auto updated = Await<UpdateResult>([&](UpdateDone done) {
      subject_->node().Update(std::move(request.batch), std::move(request.memory),
                              absl::InfiniteFuture(), std::move(done));
    });
    if (updated.ok()) ++seq_;
    return updated.status();
  }
  // By replica group.
  std::vector<NodeRows> Rows() {
    std::vector<NodeRows> rows;
    for (std::uint32_t group = 0; group < table_.replica_groups; ++group) {
      rows.push_back(*ReadNodeRows(subject_->node(), table_, group));
    }
    return rows;
  }

  std::vector<std::string> FilesOf(std::uint64_t snapshot) {
    const std::string prefix = "snapshot-0000000000000000000" + std::to_string(snapshot) + "-";
    std::vector<std::string> files = *subject_->disk().List();
    std::erase_if(files, [&](const std::string& name) { return !name.starts_with(prefix); });
    return files;
  }
  // Flips a bit in the middle of a file.
  void Damage(const std::string& file) {
    std::string content = *subject_->disk().Read(file);
    content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 4);
    subject_->disk().Overwrite(file, content);
  }
  void Average() {
    const auto averaged = Await<SyncResult>([&](SyncDone done) {
      subject_->node().Sync({{kTable}}, absl::InfiniteFuture(), std::move(done));
    });
    ASSERT_THAT(averaged, IsOk());
  }

  // Snapshot 1 without a snapshotter, and `meanwhile` before each window is read.
  void TakeByHand(const std::function<void()>& meanwhile) {
    NodeImages& images = subject_->node().images();
    absl::StatusOr<NodeImages::Taken> taken = images.Take([] { return absl::OkStatus(); });
    ASSERT_THAT(taken, IsOk());
    SnapshotHead head;
    head.record = {.number = 1,
                   .base = 1,
                   .position = taken->image.position,
                   .log_process = subject_->journal().recovery().node.log_process,
                   .time = taken->image.time,
                   .sessions = taken->image.sessions};
    head.image = std::move(taken->image);
    auto writer = SnapshotWriter::Begin(subject_->disk(), kSegmentBytes, head);
    ASSERT_THAT(writer, IsOk());
    for (const RowWindow& window : taken->windows) {
      meanwhile();
      const auto rows = Await<std::vector<WindowRows>>(
          [&](auto done) { images.Read(window, /*changed_only=*/false, std::move(done)); });
      ASSERT_THAT(rows, IsOk());
      for (const WindowRows& on_device : *rows) {
        ASSERT_THAT((*writer)->Add(window, on_device), IsOk());
      }
    }
    ASSERT_THAT((*writer)->Finish(), IsOk());
  }

  NodeSpec node_;
  JournaledNode::Options options_;
  TableSpec table_;
  std::unique_ptr<JournaledNode> subject_;
  std::uint64_t seq_ = 1;
};

// A base and two snapshots of changes, each a little after the one before.
TEST_F(SnapshotsTest, AStartGoesOnFromTheSnapshotBeforeADamagedOne) {
  options_.journal.snapshots.changes_share = 10;
  Start(/*rows=*/600);
  for (int round = 0; round < 3; ++round) {
    ASSERT_THAT(AddOne(round * 100, 250), IsOk());
    ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
  }
  ASSERT_THAT(AddOne(50, 400), IsOk());
  const std::vector<NodeRows> expected = Rows();
  subject_->Kill();
  subject_->Start();
  EXPECT_EQ(subject_->journal().recovery().snapshot, 3u);
  EXPECT_EQ(subject_->journal().recovery().updates, 1u);
  EXPECT_EQ(Rows(), expected);
  subject_->Kill();
  const std::vector<std::string> files = FilesOf(3);
  ASSERT_FALSE(files.empty());
  Damage(files.front());
  subject_->Start();
  EXPECT_EQ(subject_->journal().recovery().snapshot, 2u);
  EXPECT_EQ(subject_->journal().recovery().updates, 2u);
  EXPECT_EQ(Rows(), expected);
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
  subject_->Kill();
  subject_->Start();
  EXPECT_EQ(Rows(), expected);
  ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
}

TEST_F(SnapshotsTest, NoneIsTakenWhileAUnitComes) {
  Start(/*rows=*/600);
  UnitHost& host = subject_->node().units();
  const UnitId unit{kTable, 0, 0};
  const absl::Status reserved = AwaitStatus([&](HostDone done) {
    host.Reserve(unit, /*device=*/1, {0, 600}, std::move(done));
  });
  ASSERT_THAT(reserved, IsOk());
  const absl::Status taken = subject_->TakeSnapshot();
  EXPECT_TRUE(absl::IsUnavailable(taken)) << taken;
  EXPECT_THAT(taken.message(), HasSubstr("on its way"));
  const absl::Status discarded =
      AwaitStatus([&](HostDone done) { host.Discard(unit, std::move(done)); });
  ASSERT_THAT(discarded, IsOk());
  EXPECT_THAT(subject_->TakeSnapshot(), IsOk());
}

// The ids of a bucket say which row an update takes away. Until the bucket's window comes, a start
// has those of the snapshot before: by them id 200 would take the row of id 1, and nobody would
// bring it back, as nothing has changed it.
TEST_F(SnapshotsTest, IdsKeepTheirRowsWhateverAStartTakesThemToBe) {
  options_.journal.snapshots.changes_share = 10;
  table_.zch = ZchSpec{.buckets = 1, .policy = zch::Policy::kLfu};
  Start(/*rows=*/64);
  for (int count = 1; count <= 5; ++count) {
    // By id, how often: 0 twice, 1 three times, the others five times.
    ASSERT_THAT(count <= 2 ? AddOne(0, 1) : absl::OkStatus(), IsOk());
    ASSERT_THAT(count <= 3 ? AddOne(1, 1) : absl::OkStatus(), IsOk());
    ASSERT_THAT(AddOne(2, 62), IsOk());
  }
  ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
  ASSERT_THAT(AddOne(100, 1), IsOk());
  SlowSnapshot slow;
  slow.Begin(subject_->journal());
  for (const std::int64_t id : {0, 0, 200}) ASSERT_THAT(AddOne(id, 1), IsOk());
  ASSERT_THAT(slow.Finish(), IsOk());
  const std::vector<NodeRows> expected = Rows();
  subject_->Kill();
  subject_->Start();
  EXPECT_EQ(subject_->journal().recovery().snapshot, 2u);
  EXPECT_TRUE(Rows() == expected);
}

// An averaging reads the rows of all groups.
TEST_F(SnapshotsTest, AllGroupsOfAWindowAreReadOnTheSameSideOfAnAveraging) {
  table_.replica_groups = 2;
  Start(/*rows=*/9000);
  ASSERT_THAT(AddOne(0, 500), IsOk());
  Average();
  int windows = 0;
  TakeByHand([&] {
    ASSERT_THAT(AddOne(3000 * windows++, 500), IsOk());
    Average();
  });
  EXPECT_GT(windows, 1);
  const std::vector<NodeRows> expected = Rows();
  subject_->Kill();
  subject_->Start();
  EXPECT_EQ(subject_->journal().recovery().snapshot, 1u);
  EXPECT_EQ(subject_->journal().recovery().updates, static_cast<std::uint64_t>(windows));
  EXPECT_TRUE(Rows() == expected);
}

// Updates of fifty times the table, by which nothing grows; a start finds the newest snapshot and
// little behind it. Where updates come faster than a snapshot is written, they wait.
TEST_F(SnapshotsTest, TheDirectoryHasAtMostFourTimesItsTablesAndAFewSegments) {
  constexpr std::int64_t kRows = 4096;
  constexpr std::int64_t kRowsOfUpdate = 192;
  options_.journal.snapshots.journal_bytes_min = kSegmentBytes;
  options_.journal.snapshots.growth_bytes_max_min = kSegmentBytes;
  options_.journal.snapshots.look_every = absl::Milliseconds(1);
  Start(kRows);
  subject_->journal().StartSnapshots([](const auto& work) {
    work([] { return std::vector<RestoredUnit>(); });
    return true;
  });
  const std::uint64_t table_bytes = kRows * kDim * sizeof(float);
  std::uint64_t most = 0;
  for (std::int64_t done = 0; done < 50 * kRows; done += kRowsOfUpdate) {
    absl::Status updated;
    AwaitFor(
        [&] {
          updated = AddOne(done * 7, kRowsOfUpdate);
          return !absl::IsResourceExhausted(updated);
        },
        absl::Seconds(60), "the journal takes the update");
    ASSERT_THAT(updated, IsOk());
    if (done % (8 * kRowsOfUpdate) == 0) most = std::max(most, subject_->disk().bytes());
  }
  EXPECT_LE(most, 4 * table_bytes + 6 * kSegmentBytes);
  const std::vector<NodeRows> expected = Rows();
  subject_->Kill();
  subject_->Start();
  EXPECT_EQ(Rows(), expected);
  const JournalRecovery& recovery = subject_->journal().recovery();
  EXPECT_GT(recovery.snapshot, 10u);
  EXPECT_LE(recovery.bytes, 2 * table_bytes);
  EXPECT_LE(recovery.snapshot_bytes, 2 * table_bytes);
}

}  // namespace
}  // namespace embla::testing
