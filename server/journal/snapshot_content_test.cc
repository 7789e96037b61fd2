// Everything of a node that a start knows from its snapshots: rows wherever they lie, units that
// come while one is taken, sessions and steps, copies, averagings, ids.
#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/testing/await.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/journal/testing/journaled_node.h"
#include "server/journal/testing/slow_snapshot.h"
#include "server/journal/testing/snapshots_fixture.h"
#include "server/shard/testing/local_cluster.h"
#include "server/shard/testing/row_images.h"
#include "server/shard/testing/unit_moves.h"

namespace embla::testing {
namespace {

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

// The snapshot knows nothing of the columns; an update that was decided after it leaves their rows
// out, as others have them.
TEST_F(SnapshotsTest, AnUpdateThatLeftOutRowsOfColumnsThatHaveLeftIsRepeated) {
  table_.column_granule_width = kDim / 2;
  placement_ = {.sharding = ShardingType::kColumnWise, .min_partition = kDim / 2};
  Start(/*rows=*/600);
  UnitHost& host = subject_->node().units();
  for (std::uint32_t unit = 0; unit < 8; ++unit) {
    const auto gate = std::make_shared<ScriptedGate>(UnitWindows());
    gate->Release(NodeId{2});
    RunInOrder(host, kTable, [&] { host.SetGate({kTable, unit, 0}, gate); });
    Trim(unit);
  }
  ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
  const auto result = AddOneAs(1, 0, 600);
  ASSERT_THAT(result, IsOk());
  EXPECT_FALSE(result->refused.empty());
  const std::vector<NodeRows> expected = Rows();
  EXPECT_EQ(expected[0].size(), 600u) << "half of each row";
  KillAndStart();
  EXPECT_EQ(subject_->journal().recovery().updates, 1u);
  EXPECT_TRUE(Rows() == expected);
}

// A task looks through many windows, or reads a part of one with many changes, and rows that it has
// passed change again before the next one.
TEST_F(SnapshotsTest, ChangesOfManyWindowsAreAllThereWhileOthersCome) {
  const std::uint32_t seed = TestSeed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  constexpr int kTableRows = 60'000;  // Windows have about 4,000 rows.
  options_.journal.snapshots.changes_share = 10;
  Start(kTableRows);
  ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
  for (int round = 0; round < 6; ++round) {
    for (int i = 0; i < 20; ++i) ASSERT_THAT(AddOne(random() % kTableRows, 3), IsOk());
    const auto first = static_cast<std::int64_t>(random() % kTableRows);
    for (int i = 0; i < 50 && round % 2 == 1; ++i) {
      ASSERT_THAT(AddOne(first + 800 * i, 800), IsOk());
    }
    std::atomic<bool> is_taken = false;
    std::thread taker([&] {
      EXPECT_THAT(subject_->TakeSnapshot(), IsOk());
      is_taken = true;
    });
    while (!is_taken) EXPECT_THAT(AddOne(random() % kTableRows, 1 + random() % 50), IsOk());
    taker.join();
    const std::vector<NodeRows> expected = Rows();
    KillAndStart();
    EXPECT_EQ(subject_->journal().recovery().snapshot, NewestSnapshot());
    ASSERT_TRUE(Rows() == expected);
    // A new process begins with a base.
    ASSERT_THAT(subject_->TakeSnapshot(), IsOk());
  }
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
    message.content = CopyProbe{.table = kShared, .reign = 5};
    message.plan_version = message.term = PlanVersion{2};
    message.life = life;
    message.serves = life != 0;
    return Await<ReplicaAck>([&](ReplicaDone done) {
      subject_->node().ApplyReplicated(std::move(message), absl::InfiniteFuture(), std::move(done));
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

}  // namespace
}  // namespace embla::testing
