// Snapshots of a node: what a start needs of them, what it does without, and that the directory
// does not grow with what was ever trained. (That the rows are the same bits, whenever snapshots
// are taken and processes die, is shown by node_journal_test, unit_recovery_test and
// copies_recovery_test.)
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
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
    absl::StatusOr<TablePlan> table =
        PlaceTable(table_, {.sharding = ShardingType::kRowWise}, {node_}, {});
    ASSERT_THAT(table, IsOk());
    if (table_.sync.has_value()) {
      table->steps = {.version = PlanVersion{1}, .members = {{.ranks = {Rank{0}}}}};
    }
    subject_ = std::make_unique<JournaledNode>(options_);
    const absl::Status installed = subject_->node().InstallPlan(
        std::make_shared<const Plan>(PlanVersion{1}, "test", std::vector{node_},
                                     std::vector{*table}),
        kSelf);
    ASSERT_THAT(installed, IsOk());
  }

  // Adds 1 to `count` rows from `first` on, or to those of so many ids of a ZCH table.
  absl::Status AddOne(std::int64_t first, std::int64_t count, std::uint32_t group = 0) {
    const absl::Status updated = AddOneAs(seq_, first, count, group).status();
    if (updated.ok()) ++seq_;
    return updated;
  }
  // The same as update `seq`, at about that step; of a table with steps, the first one.
  absl::StatusOr<UpdateResult> AddOneAs(std::uint64_t seq, std::int64_t first, std::int64_t count,
                                        std::uint32_t group = 0) {
    UpdatePartData data;
    data.part.table = kTable;
    data.part.replica_group = group;
    data.part.clipped = table_.sync.has_value();
    data.part.column_end = kDim;
    const std::int64_t ids = table_.zch.has_value() ? 1000 : table_.rows;
    for (std::int64_t i = 0; i < count; ++i) data.ids.push_back(RowId{(first + i) % ids});
    data.gradients =
        EncodeRows(std::vector<float>(data.ids.size() * kDim, -1.0f), kDim, DType::kFloat32);
    UpdateBatch header;
    header.session = SessionId{1};
    header.seq = header.first_incomplete = UpdateSeq{seq};
    header.step = seq + steps_ahead_;
    if (table_.sync.has_value()) {
      header.step = 0;
      header.claim = StepClaim{.table = kTable, .rank = Rank{0}, .resumes = false, .units = {}};
      header.claim->units = UnitSet({0, 0, table_.row_granules});
    }
    Packed<UpdateBatch> request = Pack(header, {data});
    return Await<UpdateResult>([&](UpdateDone done) {
      subject_->node().Update(std::move(request.batch), std::move(request.memory),
                              absl::InfiniteFuture(), std::move(done));
    });
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
  // 0: none was begun.
  std::uint64_t NewestSnapshot() {
    const std::vector<std::uint64_t> numbers = *SnapshotStorage::List(subject_->disk());
    return numbers.empty() ? 0 : numbers.back();
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

  // All ids lose their rows.
  void SweepAll() {
    ShardNode::SweepQuery query;
    query.table = kTable;
    query.sweep = {ZchSweep::Rule::kIdle, seq_, seq_};
    query.rows = {{0, table_.rows}};
    const auto swept = Await<SweepResult>([&](SweepDone done) {
      subject_->node().SweepTable(query, absl::InfiniteFuture(), std::move(done));
    });
    ASSERT_THAT(swept, IsOk());
  }
  void KillAndStart() {
    subject_->Kill();
    subject_->Start();
  }

  // Snapshot 1 without a snapshotter, and `meanwhile` before each window is read. `change` changes
  // the image.
  void TakeByHand(
      const std::function<void()>& meanwhile,
      const std::function<void(NodeImage&)>& change = [](NodeImage&) {}) {
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
    change(head.image);
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

  void Trim(std::uint32_t unit) {
    UnitHost& host = subject_->node().units();
    ASSERT_THAT(AwaitStatus([&](HostDone done) {
                  host.Trim({kTable, unit, 0}, std::move(done));
                }),
                IsOk());
  }
  static constexpr UnitId kUnit{kTable, 0, 0};
  static constexpr MoveId kMove{3};
  static constexpr Lsn kCut{9};

  RowRun RunOfUnit() {
    const UnitShape shape = *subject_->node().units().ShapeOf(kUnit);
    return {shape.row_begin, shape.row_end};
  }
  void Control(const LogRecord& record) {
    const absl::Status written = AwaitStatus(
        [&](HostDone done) { (void)subject_->journal().AppendControl(kUnit, record, done); });
    ASSERT_THAT(written, IsOk());
  }
  void Reserve(MoveId move, std::uint32_t device) {
    const RowRun run = RunOfUnit();
    ASSERT_THAT(AwaitStatus([&](HostDone done) {
                  subject_->node().units().Reserve(kUnit, device, run, std::move(done));
                }),
                IsOk());
    ASSERT_THAT(subject_->journal().AppendReserved(kUnit, device, run), IsOk());
    Control(ImportRecord{move, NodeId{2}, {}});
  }
  void AppendChunk(Lsn version, const SharedBuffer& rows) {
    const Chunk chunk{.move = kMove, .chunk = 0, .version = version};
    ASSERT_THAT(subject_->journal().AppendChunk(kUnit, chunk, rows.bytes()), IsOk());
  }
  // Unit 0 has left, and is staged again with the rows that it had, which are returned.
  SharedBuffer StageUnit() {
    UnitHost& host = subject_->node().units();
    auto read = Await<Buffer>([&](auto done) { host.ReadChunk(kUnit, 0, {}, std::move(done)); });
    EXPECT_THAT(read, IsOk());
    SharedBuffer rows(*std::move(read));
    Trim(0);
    Reserve(kMove, /*device=*/0);
    EXPECT_THAT(
        AwaitStatus([&](HostDone done) { host.Stage(kUnit, 0, rows, {}, std::move(done)); }),
        IsOk());
    AppendChunk(kCut, rows);
    return rows;
  }
  std::vector<RestoredUnit> ComingUnit() {
    RestoredUnit coming{
        .unit = kUnit, .durable = {}, .staged = {kCut}, .has_memory = true, .run = RunOfUnit()};
    coming.durable.touched = {Lsn{0}};
    coming.durable.import = ImportState{kMove, NodeId{2}, {}};
    return {coming};
  }
  // Unit 0, whose rows are staged when the image is taken, has arrived when they are read: it was
  // trained by then, and there is room for it on another device, too.
  void LetComeWhileASnapshotIsTaken() {
    ASSERT_THAT(AddOne(0, 600), IsOk());
    StageUnit();
    SlowSnapshot slow;
    slow.Begin(subject_->journal(), [&] { return ComingUnit(); });
    Control(OwnRecord{UnitEpoch{2}, kMove, kCut, {}});
    const auto gate = std::make_shared<ScriptedGate>(UnitWindows(), UnitEpoch{2});
    ASSERT_THAT(AwaitStatus([&](HostDone done) {
                  subject_->node().units().Install(kUnit, gate, std::move(done));
                }),
                IsOk());
    ASSERT_THAT(AddOne(0, 300), IsOk());
    if (table_.replica_groups == 1) Reserve(Next(kMove), /*device=*/1);
    ASSERT_THAT(slow.Finish(), IsOk());
    const std::vector<NodeRows> expected = Rows();
    KillAndStart();
    EXPECT_EQ(subject_->journal().recovery().snapshot, 1u);
    EXPECT_TRUE(Rows() == expected);
  }

  NodeSpec node_;
  JournaledNode::Options options_;
  TableSpec table_;
  std::unique_ptr<JournaledNode> subject_;
  std::uint64_t seq_ = 1;
  std::uint64_t steps_ahead_ = 0;
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
  KillAndStart();
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
  KillAndStart();
  EXPECT_EQ(Rows(), expected);
  ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
}

// Units have left, changed devices and come to another one, and no plan says so.
TEST_F(SnapshotsTest, RowsAreWhereTheyWereWhateverThePlanSays) {
  Start(/*rows=*/600);
  ASSERT_THAT(AddOne(0, 600), IsOk());
  UnitHost& host = subject_->node().units();
  Trim(0);
  ASSERT_THAT(AwaitStatus([&](HostDone done) {
                host.Reserve({kTable, 1, 0}, /*device=*/1, {0, 600}, std::move(done));
              }),
              IsOk());
  ASSERT_THAT(AwaitStatus([&](HostDone done) {
                host.Relocate({kTable, 1, 0}, std::move(done));
              }),
              IsOk());
  // Memory that nobody has logged yet.
  ASSERT_THAT(AwaitStatus([&](HostDone done) {
                host.Reserve({kTable, 0, 0}, /*device=*/0, {0, 600}, std::move(done));
              }),
              IsOk());
  ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
  const std::vector<NodeRows> expected = Rows();
  const std::vector<UnitStandings> units = subject_->node().OwnedUnits();
  EXPECT_EQ(expected[0].size(), 525u);
  KillAndStart();
  EXPECT_TRUE(Rows() == expected);
  EXPECT_EQ(subject_->node().OwnedUnits(), units);
}

// A table of which the plan has rows here does not begin anew.
TEST_F(SnapshotsTest, UnitsThatHaveAllLeftDoNotComeBack) {
  Start(/*rows=*/600);
  for (std::uint32_t unit = 0; unit < 8; ++unit) Trim(unit);
  ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
  KillAndStart();
  EXPECT_TRUE(subject_->node().OwnedUnits().empty());
}

TEST_F(SnapshotsTest, AUnitThatComesWhileASnapshotIsTakenIsWhole) {
  Start(/*rows=*/600);
  LetComeWhileASnapshotIsTaken();
}

TEST_F(SnapshotsTest, ABucketThatComesWhileASnapshotIsTakenIsWhole) {
  table_.zch = ZchSpec{.buckets = 2};
  Start(/*rows=*/128);
  LetComeWhileASnapshotIsTaken();
}

TEST_F(SnapshotsTest, AUnitOfGroupsThatComesWhileASnapshotIsTakenIsWhole) {
  table_.replica_groups = 2;
  Start(/*rows=*/600);
  LetComeWhileASnapshotIsTaken();
}

// A chunk is staged before the mover hears of it; when the snapshot asks the mover for the second
// time, it has written that down.
TEST_F(SnapshotsTest, TheJournalSaysOfAStagedChunkWhatItsWindowHas) {
  std::mt19937_64 power(7);
  Start(/*rows=*/600);
  ASSERT_THAT(AddOne(0, 600), IsOk());
  const SharedBuffer rows = StageUnit();
  int asked = 0;
  const absl::Status taken = subject_->journal().TakeSnapshot([&](const auto& work) {
    if (++asked == 2) AppendChunk(Next(kCut), rows);
    work([&] { return ComingUnit(); });
    return true;
  });
  ASSERT_THAT(taken, IsOk());
  subject_->Kill();
  subject_->disk().LosePower(power);
  ASSERT_THAT(subject_->TryStart(), IsOk());
  const std::vector<RestoredUnit>& units = subject_->journal().recovery().node.units;
  ASSERT_EQ(units.size(), 1u);
  EXPECT_EQ(units[0].staged, ChunkVersions{Next(kCut)});
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

// Plans that change nothing here are not in the journal, but in the image.
TEST_F(SnapshotsTest, ThePlanAfterAnImageIsReadAfterThatOfTheImage) {
  Start(/*rows=*/600);
  TablePlan table = subject_->node().plan()->tables()[0];
  const auto install = [&](std::uint64_t version) {
    const absl::Status installed = subject_->node().InstallPlan(
        std::make_shared<const Plan>(PlanVersion{version}, "test", std::vector{node_},
                                     std::vector{table}),
        kSelf);
    ASSERT_THAT(installed, IsOk());
  };
  install(2);
  ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
  table.spec.optimizer.learning_rate = 0.5f;
  install(3);
  subject_->Kill();
  ASSERT_THAT(subject_->TryStart(), IsOk());
  EXPECT_EQ(subject_->node().plan()->version(), PlanVersion{3});
}

// The journal behind a snapshot may have nothing that would say it again.
TEST_F(SnapshotsTest, SessionsAndStepsAreKnown) {
  constexpr std::uint64_t kFar = std::uint64_t{1} << 43;
  constexpr SessionId kSeen{5}, kClosed{7};
  table_.zch = ZchSpec{.buckets = 1};
  Start(/*rows=*/64);
  SessionGate* sessions = &subject_->node().sessions();
  ASSERT_THAT(sessions->Admit(kSeen, UpdateSeq{9}, UpdateSeq{9}, absl::Now()), IsOk());
  ClosedSessions closed;
  closed.refused.Insert(kClosed);
  ASSERT_THAT(subject_->node().CloseSessions(closed), IsOk());
  ASSERT_THAT(AddOne(0, 10), IsOk());
  ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
  KillAndStart();
  EXPECT_EQ(subject_->journal().recovery().updates, 0u);
  sessions = &subject_->node().sessions();
  EXPECT_TRUE(sessions->IsClosed(kClosed));
  const absl::Status jump = sessions->Admit(kSeen, UpdateSeq{kFar}, UpdateSeq{kFar}, absl::Now());
  EXPECT_TRUE(absl::IsInvalidArgument(jump)) << jump;
  steps_ahead_ = kFar;
  const absl::Status far_step = AddOne(0, 10);
  EXPECT_TRUE(absl::IsInvalidArgument(far_step)) << far_step;
}

TEST_F(SnapshotsTest, StepsThatWereMadeAreKnown) {
  table_.sync.emplace();
  Start(/*rows=*/600);
  ASSERT_THAT(AddOne(0, 10), IsOk());
  ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
  KillAndStart();
  EXPECT_EQ(subject_->journal().recovery().updates, 0u);
  ASSERT_EQ(subject_->node().StepReports().size(), 1u);
  EXPECT_EQ(subject_->node().StepReports()[0].first_unmade, 1u);
}

// The record that says so may be in the journal before the image, and not be synced yet.
TEST_F(SnapshotsTest, ACopyThatHasEverythingStillDoesAfterAStart) {
  constexpr TableId kShared{2};
  options_.journal.level = Durability::kSynced;
  Start(/*rows=*/600);
  NodeSpec primary = node_;
  primary.id = NodeId{2};
  primary.name = "n1";
  TablePlan table{.spec = table_, .sharding = ShardingType::kDataParallel, .replicas = {}};
  table.spec.id = kShared;
  table.spec.name = "shared";
  for (const NodeId node : {primary.id, kSelf}) {
    table.replicas.push_back({{.row_begin = 0,
                               .row_end = table_.rows,
                               .column_begin = 0,
                               .column_end = kDim,
                               .device = {node, 0}}});
  }
  const absl::Status installed = subject_->node().InstallPlan(
      std::make_shared<const Plan>(PlanVersion{2}, "test", std::vector{node_, primary},
                                   std::vector{table}),
      kSelf);
  ASSERT_THAT(installed, IsOk());
  const auto probe = [&](std::uint64_t life) {
    ReplicaMessage message;
    message.table = kShared;
    message.reign = 5;
    message.plan_version = message.term = PlanVersion{2};
    message.life = life;
    message.serves = life != 0;
    return Await<ReplicaAck>([&](ReplicaDone done) {
      subject_->node().ApplyReplicated(std::move(message), Buffer(), absl::InfiniteFuture(),
                                       std::move(done));
    });
  };
  const auto first = probe(/*life=*/0);
  ASSERT_THAT(first, IsOk());
  subject_->disk().Hold(SimulatedStorage::Gate::kSync);
  ASSERT_THAT(probe(first->life), IsOk());
  AwaitFor([&] { return subject_->node().ViewCopy(kShared).serves; }, absl::Seconds(10),
           "the copy is confirmed");
  EXPECT_FALSE(subject_->node().ViewCopy(kShared).has_all);
  SlowSnapshot slow;
  slow.Begin(subject_->journal());
  subject_->disk().Release(SimulatedStorage::Gate::kSync);
  ASSERT_THAT(slow.Finish(), IsOk());
  KillAndStart();
  EXPECT_TRUE(subject_->node().ViewCopy(kShared).has_all);
}

// The groups have two updates each when the last one comes.
TEST_F(SnapshotsTest, UpdatesBeforeASnapshotCountForTheNextAveraging) {
  table_.replica_groups = 2;
  table_.sync_every_steps = 2;
  Start(/*rows=*/600);
  for (const std::uint32_t group : {0, 0, 1}) ASSERT_THAT(AddOne(0, 100, group), IsOk());
  ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
  KillAndStart();
  EXPECT_NE(Rows()[0], Rows()[1]);
  ASSERT_THAT(AddOne(0, 50, /*group=*/1), IsOk());
  AwaitFor([&] { return Rows()[0] == Rows()[1]; }, absl::Seconds(10), "the groups are averaged");
}

TEST_F(SnapshotsTest, AnAveragingThatWasDueIsMadeUpFor) {
  table_.replica_groups = 2;
  Start(/*rows=*/600);
  ASSERT_THAT(AddOne(0, 100), IsOk());
  TakeByHand([] {}, [](NodeImage& image) { image.tables[0].groups->is_due = true; });
  KillAndStart();
  AwaitFor([&] { return Rows()[0] == Rows()[1]; }, absl::Seconds(10), "the groups are averaged");
}

// A sweep changes no row.
TEST_F(SnapshotsTest, IdsThatASweepTookAreGone) {
  options_.journal.snapshots.changes_share = 10;
  table_.zch = ZchSpec{.buckets = 1};
  Start(/*rows=*/64);
  ASSERT_THAT(AddOne(0, 20), IsOk());
  ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
  SweepAll();
  ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
  EXPECT_TRUE(Rows()[0].empty());
  KillAndStart();
  EXPECT_TRUE(Rows()[0].empty());
}

// The rows that a start has then are those of the snapshot before.
TEST_F(SnapshotsTest, NobodyIsToldRowsThatIdsLostBeforeTheirWindowCame) {
  options_.journal.snapshots.changes_share = 10;
  table_.zch = ZchSpec{.buckets = 1, .eviction_buffer_bytes = 1 << 20};
  Start(/*rows=*/64);
  ASSERT_THAT(AddOne(0, 10), IsOk());
  ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
  ASSERT_THAT(AddOne(0, 10), IsOk());
  SlowSnapshot slow;
  slow.Begin(subject_->journal());
  SweepAll();
  ASSERT_THAT(slow.Finish(), IsOk());
  EXPECT_NE((*subject_->node().Evictions(kTable))->Read(0).rows, nullptr);
  KillAndStart();
  const EvictionLog::Piece piece = (*subject_->node().Evictions(kTable))->Read(0);
  EXPECT_EQ(piece.rows, nullptr);
  EXPECT_EQ(piece.missed, 10u);
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
  KillAndStart();
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
  KillAndStart();
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
