// Updates that come in two halves around a fold of the unit's record (server/migration/
// record_fold.h), call by call.
#include <functional>
#include <memory>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/testing/unit_moves.h"

namespace embla::unit_folds_test {
namespace {

using ::embla::testing::EncodeRows;
using ::embla::testing::IsOk;
using ::embla::testing::LocalCluster;
using ::embla::testing::LookupPartData;
using ::embla::testing::Pack;
using ::embla::testing::ScriptedGate;
using ::embla::testing::StatusIs;
using ::embla::testing::UpdatePartData;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr NodeId kNode{1};
constexpr TableId kTable{7};
// 40 rows in 4 units of 10.
constexpr std::int64_t kRows = 40;
constexpr std::uint32_t kDim = 4;
constexpr std::int64_t kRowOfRest = 1;
constexpr std::int64_t kRowOfUnit = 15;
constexpr UnitId kUnit{kTable, 1, 0};

// Plan 1: the unit is elsewhere as far as clients know. From plan 2 on it is here, at rest.
class UnitFoldsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Install();
    gate_ = std::make_shared<ScriptedGate>(UnitWindows());
    InOrder([&] { host().SetGate(kUnit, gate_); });
    Install();
  }

  void Install() {
    ASSERT_THAT(cluster_.Install({testing::TableOfFourUnits(kRows, kDim, {kNode, 0})}), IsOk());
  }
  UnitHost& host() { return cluster_.node(kNode).units(); }
  PlanVersion plan() const { return cluster_.plan()->version(); }
  void InOrder(const std::function<void()>& work) { testing::RunInOrder(host(), kTable, work); }

  void BeginFold() {
    InOrder([&] { host().StepFold(kTable, plan()); });
    InOrder([&] { host().NoteForFold(kUnit, gate_->windows(), plan()); });
  }
  // Whether the unit's record has joined.
  bool EndFold() {
    bool joins = false;
    InOrder([&] {
      host().StepFold(kTable, plan());
      const PlanVersion under = host().MayJoin(kUnit);
      joins = under != PlanVersion{};
      if (joins) host().JoinRest(kUnit, gate_->windows(), under);
    });
    return joins;
  }
  void TakeApart() {
    InOrder([&] {
      gate_ = std::make_shared<ScriptedGate>(host().WindowsOf(kUnit));
      host().SetGate(kUnit, gate_);
    });
  }

  struct Header {
    std::uint64_t seq = 1;
    std::uint64_t first_incomplete = 1;
    std::uint64_t since = 0;
  };
  absl::StatusOr<UpdateResult> Update(const Header& header, const std::vector<std::int64_t>& rows) {
    UpdateBatch batch;
    batch.session = SessionId{1};
    batch.seq = UpdateSeq{header.seq};
    batch.first_incomplete = UpdateSeq{header.first_incomplete};
    batch.routed_since = PlanVersion{header.since};
    UpdatePartData part;
    part.part.table = kTable;
    part.part.column_end = kDim;
    for (const std::int64_t row : rows) part.ids.push_back(RowId{row});
    part.gradients =
        EncodeRows(std::vector<float>(rows.size() * kDim, 1.0f), kDim, DType::kFloat32);
    return cluster_.Update(kNode, Pack(batch, {part}));
  }
  // How often the two rows were stepped.
  std::vector<float> Steps() {
    LookupPartData data;
    data.part.table = kTable;
    data.part.column_end = kDim;
    data.ids = {RowId{kRowOfRest}, RowId{kRowOfUnit}};
    const auto result = cluster_.Lookup(kNode, Pack(LookupBatch{}, {data}));
    EXPECT_THAT(result.status(), IsOk());
    const auto values = result->rows.As<float>();
    return {-values[0], -values[kDim]};
  }

  LocalCluster cluster_{LocalCluster::Options{}};
  std::shared_ptr<ScriptedGate> gate_;
};

TEST_F(UnitFoldsTest, AnUpdateOfWhichOneHalfIsHereIsWaitedFor) {
  ASSERT_THAT(Update({.since = 1}, {kRowOfRest}).status(), IsOk());
  BeginFold();
  EXPECT_FALSE(EndFold());
  ASSERT_THAT(Update({.since = 2}, {kRowOfUnit}).status(), IsOk());
  EXPECT_FALSE(EndFold());
  // The trainer has heard of both.
  ASSERT_THAT(Update({.seq = 2, .first_incomplete = 2, .since = 2}, {kRowOfRest}).status(), IsOk());
  EXPECT_TRUE(EndFold());
  EXPECT_THAT(Steps(), ElementsAre(2, 1));
}

TEST_F(UnitFoldsTest, AHalfThatComesDuringTheWaitEndsIt) {
  BeginFold();
  ASSERT_THAT(Update({.since = 1}, {kRowOfRest}).status(), IsOk());
  EXPECT_FALSE(EndFold());
  ASSERT_THAT(Update({.since = 1}, {kRowOfUnit}).status(), IsOk());
  EXPECT_THAT(Steps(), ElementsAre(1, 1));
}

TEST_F(UnitFoldsTest, AHalfThatComesAfterwardsFindsTheUnitTakenApart) {
  BeginFold();
  ASSERT_TRUE(EndFold());
  std::uint64_t seq = 0;
  const auto whole = [&] {  // An update whose header says that all updates before it are over.
    ++seq;
    const Header header{.seq = seq, .first_incomplete = seq, .since = 2};
    ASSERT_THAT(Update(header, {kRowOfRest, kRowOfUnit}).status(), IsOk());
  };
  for (const std::uint64_t since : {1, 0}) {
    ++seq;
    const Header header{.seq = seq, .first_incomplete = seq, .since = since};
    EXPECT_THAT(Update(header, {kRowOfRest}),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("taken apart")));
    ASSERT_TRUE(host().AsksApart(kTable));
    TakeApart();
    EXPECT_FALSE(host().AsksApart(kTable));
    ASSERT_THAT(Update(header, {kRowOfRest}).status(), IsOk());
    ASSERT_THAT(Update(header, {kRowOfUnit}).status(), IsOk());
    // The update is over, and the unit joins again.
    whole();
    BeginFold();
    whole();
    ASSERT_TRUE(EndFold());
  }
  EXPECT_THAT(Steps(), ElementsAre(6, 6));
}

TEST_F(UnitFoldsTest, RepetitionsAreRepetitionsBeforeAndAfterAndOnceTakenApart) {
  ASSERT_THAT(Update({.seq = 1, .since = 2}, {kRowOfUnit}).status(), IsOk());
  BeginFold();
  const Header open{.seq = 2, .first_incomplete = 2, .since = 2};
  ASSERT_THAT(Update(open, {kRowOfUnit}).status(), IsOk());
  ASSERT_TRUE(EndFold());
  const auto repeated = Update(open, {kRowOfUnit});
  ASSERT_THAT(repeated.status(), IsOk());
  EXPECT_TRUE(repeated->duplicate);
  // Also one that does not say since when: nothing is taken apart for it.
  ASSERT_THAT(Update({.seq = 2, .first_incomplete = 2}, {kRowOfUnit}).status(), IsOk());
  EXPECT_FALSE(host().AsksApart(kTable));
  TakeApart();
  ASSERT_THAT(Update(open, {kRowOfUnit}).status(), IsOk());
  EXPECT_THAT(Steps(), ElementsAre(0, 2));
}

TEST_F(UnitFoldsTest, RowsThatAreLeftOutEndTheWait) {
  BeginFold();
  InOrder([&] { gate_->Freeze(); });
  const auto halved = Update({.since = 2}, {kRowOfRest, kRowOfUnit});
  ASSERT_THAT(halved.status(), IsOk());
  EXPECT_EQ(halved->refused.size(), 1u);
  InOrder([&] { gate_->Unfreeze(); });
  EXPECT_FALSE(EndFold());
}

TEST_F(UnitFoldsTest, AUnitThatThePlanHasElsewhereIsNotNoted) {
  TablePlan elsewhere = testing::TableOfFourUnits(kRows, kDim, {kNode, 0});
  LocalCluster two(LocalCluster::Options{.nodes = 2});
  elsewhere.replicas[0] = {{0, 10, 0, kDim, {kNode, 0}}, {10, 40, 0, kDim, {NodeId{2}, 0}}};
  ASSERT_THAT(two.Install({elsewhere}), IsOk());
  UnitHost& host = two.node(kNode).units();
  testing::RunInOrder(host, kTable, [&] {
    host.SetGate(kUnit, std::make_shared<ScriptedGate>(UnitWindows()));
    host.StepFold(kTable, PlanVersion{1});
    host.NoteForFold(kUnit, UnitWindows(), PlanVersion{1});
    host.StepFold(kTable, PlanVersion{1});
    EXPECT_EQ(host.MayJoin(kUnit), PlanVersion{});
  });
}

}  // namespace
}  // namespace embla::unit_folds_test
