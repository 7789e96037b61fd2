// Units recovered from a log, and a mover that begins with them.
#include "server/mover/unit_replay.h"

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace embla::unit_replay_test {
namespace {

using ::embla::testing::IsOk;

constexpr UnitId kUnit{.table = TableId{3}, .row_granule = 5, .column_granule = 0};
constexpr SessionId kSession{7};
constexpr UpdateSeq kFirst{1};

// Owned and adopted by the first process.
UnitReplay AdoptedReplay() {
  UnitReplay replay;
  replay.BeginProcess();
  replay.Adopt(kUnit, /*chunks=*/2, UnitEpoch{1}, {});
  return replay;
}

RestoredUnit Only(UnitReplay replay) {
  std::vector<RestoredUnit> units = std::move(replay).Take();
  EXPECT_EQ(units.size(), 1u);
  return units.at(0);
}

TEST(UnitReplayApply, RecordsAnUpdateInTheWindowsOfTheUnit) {
  UnitReplay replay = AdoptedReplay();
  ASSERT_THAT(replay.Apply(kUnit, kSession, UpdateSeq{4}, kFirst), IsOk());
  EXPECT_EQ(replay.Apply(kUnit, kSession, UpdateSeq{4}, kFirst).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(Only(std::move(replay)).durable.windows.Classify(kSession, UpdateSeq{4}, kFirst),
            UnitWindows::Verdict::kApplied);
}

TEST(UnitReplayBeginProcess, PutsAUnitThatTakesUpdatesAboveAllThatWasGivenOut) {
  UnitReplay replay = AdoptedReplay();
  replay.BeginProcess();
  const RestoredUnit unit = Only(std::move(replay));
  EXPECT_GT(unit.durable.lsn, Lsn{ToInt(FirstLsnOf(1)) + (std::uint64_t{1} << 39)});
  EXPECT_LT(unit.durable.lsn, FirstLsnOf(2));  // Numbers that this process adopts are above, too.
  EXPECT_EQ(unit.durable.touched, ChunkVersions(2, unit.durable.lsn));
}

TEST(UnitReplayBeginProcess, LeavesAUnitThatIsHandedOverItsNumbers) {
  UnitReplay replay = AdoptedReplay();
  const Lsn cut{ToInt(FirstLsnOf(1)) + 9};
  const ChunkVersions touched = {FirstLsnOf(1), cut};
  const ReleasedState released{MoveId{2}, NodeId{2}, UnitEpoch{2}};
  ASSERT_THAT(replay.Control(kUnit, ReleaseRecord{released, cut, touched}), IsOk());
  replay.BeginProcess();
  const RestoredUnit unit = Only(std::move(replay));
  EXPECT_EQ(unit.durable.released, released);
  EXPECT_EQ(unit.durable.lsn, cut);
  EXPECT_EQ(unit.durable.touched, touched);
}

TEST(UnitReplayBeginProcess, CountsFromWhatCameWithTheUnit) {
  UnitReplay replay;
  replay.BeginProcess();
  const Lsn cut = FirstLsnOf(900);  // An lsn of a source that has begun many times.
  replay.Reserve(kUnit, /*chunks=*/2, 0, {});
  ASSERT_THAT(replay.Control(kUnit, ImportRecord{MoveId{1}, NodeId{2}, UnitEpoch{1}}), IsOk());
  ASSERT_THAT(replay.Control(kUnit, OwnRecord{UnitEpoch{2}, MoveId{1}, cut}), IsOk());
  replay.BeginProcess();
  EXPECT_GT(Only(std::move(replay)).durable.lsn, Lsn{ToInt(cut) + (std::uint64_t{1} << 39)});
}

TEST(UnitReplayStage, KeepsTheChunksOfAnOpenImport) {
  UnitReplay replay;
  const Chunk chunk{.move = MoveId{1}, .chunk = 1, .base = {}, .version = Lsn{8}};
  EXPECT_EQ(replay.Stage(kUnit, chunk).code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(replay.Reserve(kUnit, /*chunks=*/2, /*device=*/1, {10, 20}));
  ASSERT_THAT(replay.Control(kUnit, ImportRecord{MoveId{1}, NodeId{2}, UnitEpoch{1}}), IsOk());
  ASSERT_THAT(replay.Stage(kUnit, chunk), IsOk());
  UnitReplay discarded = replay;
  const RestoredUnit unit = Only(std::move(replay));
  EXPECT_EQ(unit.staged, (ChunkVersions{Lsn{0}, Lsn{8}}));
  EXPECT_TRUE(unit.has_memory);
  EXPECT_EQ(unit.device, 1u);
  EXPECT_EQ(unit.run, (RowRun{10, 20}));
  ASSERT_THAT(discarded.Control(kUnit, DiscardRecord{MoveId{1}}), IsOk());
  EXPECT_EQ(discarded.Stage(kUnit, chunk).code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(Only(std::move(discarded)).has_memory);
}

TEST(UnitReplayReserve, TellsThatMemoryWithoutAnImportIsStillThere) {
  UnitReplay replay;
  EXPECT_FALSE(replay.Reserve(kUnit, /*chunks=*/2, 0, {}));
  EXPECT_TRUE(replay.Reserve(kUnit, /*chunks=*/2, 1, {}));
  EXPECT_TRUE(Only(std::move(replay)).has_memory);
}

TEST(UnitReplayControl, AUnitThatIsHereChangesDevicesWhereItHasRoom) {
  UnitReplay replay = AdoptedReplay();
  EXPECT_EQ(replay.Control(kUnit, RelocateRecord{MoveId{1}}).code(), absl::StatusCode::kDataLoss);
  replay.Reserve(kUnit, /*chunks=*/2, /*device=*/1, {10, 20});
  ASSERT_THAT(replay.Control(kUnit, ImportRecord{MoveId{1}, NodeId{2}, UnitEpoch{1}}), IsOk());
  UnitReplay open = replay;
  EXPECT_TRUE(Only(std::move(open)).has_memory);
  ASSERT_THAT(replay.Control(kUnit, RelocateRecord{MoveId{1}}), IsOk());
  EXPECT_TRUE(replay.Owns(kUnit));
  const RestoredUnit unit = Only(std::move(replay));
  EXPECT_FALSE(unit.has_memory);
  EXPECT_FALSE(unit.durable.import.has_value());
}

TEST(UnitReplayControl, RefusesRecordsThatCannotFollow) {
  const auto code = [](const LogRecord& record) {
    UnitReplay replay = AdoptedReplay();
    return replay.Control(kUnit, record).code();
  };
  constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;
  EXPECT_EQ(code(OwnRecord{UnitEpoch{2}, MoveId{1}, Lsn{2}}), kDataLoss);
  EXPECT_EQ(code(ImportRecord{MoveId{1}, NodeId{2}, UnitEpoch{1}}), kDataLoss);
  EXPECT_EQ(code(ReleaseRecord{{MoveId{1}}, Lsn{2}, ChunkVersions(3)}), kDataLoss);
  EXPECT_EQ(code(AppliedUpdate{}), kDataLoss);
  EXPECT_EQ(UnitReplay().Control(kUnit, AbortRecord{MoveId{1}}).code(), kDataLoss);
}

TEST(UnitReplayControl, RowsThatAreKeptAsideStaySo) {
  UnitReplay replay = AdoptedReplay();
  ASSERT_THAT(replay.Control(kUnit, ReleaseRecord{{kAside}, Lsn{1}, ChunkVersions(2, Lsn{1})}),
              IsOk());
  replay.BeginProcess();
  const RestoredUnit unit = Only(std::move(replay));
  EXPECT_TRUE(IsAside(unit.durable));
  EXPECT_EQ(unit.durable.min_move, MoveId{0});
  EXPECT_EQ(unit.durable.epoch, UnitEpoch{0});
}

TEST(UnitReplayDropTable, ForgetsItsUnits) {
  UnitReplay replay = AdoptedReplay();
  replay.DropTable(TableId{2});
  EXPECT_TRUE(replay.Owns(kUnit));
  replay.DropTable(TableId{3});
  EXPECT_FALSE(replay.Owns(kUnit));
  EXPECT_TRUE(std::move(replay).Take().empty());
}

}  // namespace
}  // namespace embla::unit_replay_test
