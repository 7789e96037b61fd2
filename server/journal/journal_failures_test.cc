// Answers of a node with a journal when the log does not take a record, and when it starts with a
// journal that is not its own.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "core/planner/placement.h"
#include "core/rows/row_block.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/gpu/testing/simulated_device.h"
#include "server/journal/testing/journaled_node.h"
#include "server/shard/testing/local_cluster.h"

namespace embla::testing::journal_failures_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Code = absl::StatusCode;

constexpr TableId kTable{1};
constexpr NodeId kSelf{1};
constexpr std::int64_t kRows = 40;
constexpr std::uint32_t kDim = 8;

class JournalFailuresTest : public ::testing::Test {
 protected:
  JournalFailuresTest() {
    node_.id = kSelf;
    node_.name = "n0";
    node_.address = "127.0.0.1:1";
    node_.devices.resize(2, DeviceSpec{DeviceKind::kCpu, std::int64_t{1} << 26});
    options_.node.name = node_.name;
    options_.node.devices = node_.devices;
    options_.journal.log.segment_bytes_max = 8192;
    table_.id = kTable;
    table_.name = "t";
    table_.rows = kRows;
    table_.dim = kDim;
    table_.optimizer.kind = OptimizerKind::kSgd;
    table_.optimizer.learning_rate = 1.0f;
    table_.init = {.kind = InitKind::kConstant, .a = 0.0f};
  }

  void Start() {
    subject_ = std::make_unique<JournaledNode>(options_);
    const absl::Status installed = subject_->node().InstallPlan(PlanOf("test", 1), kSelf);
    ASSERT_THAT(installed, IsOk());
  }

  PlanPtr PlanOf(const std::string& cluster, std::uint64_t version) {
    table_.SetDefaults();
    const absl::StatusOr<TablePlan> table =
        PlaceTable(table_, {.sharding = ShardingType::kRowWise}, {node_}, {});
    EMBLA_CHECK(table.ok());
    return std::make_shared<const Plan>(PlanVersion{version}, cluster, std::vector{node_},
                                        std::vector{*table});
  }

  // Adds 1 to all weights of `rows` rows.
  absl::Status AddOne(std::uint64_t seq, std::int64_t rows = kRows, std::uint32_t group = 0) {
    UpdatePartData data;
    data.part.table = kTable;
    data.part.replica_group = group;
    data.part.column_end = kDim;
    for (std::int64_t row = 0; row < rows; ++row) data.ids.push_back(RowId{row % kRows});
    data.gradients =
        EncodeRows(std::vector<float>(data.ids.size() * kDim, -1.0f), kDim, DType::kFloat32);
    UpdateBatch header;
    header.session = SessionId{1 + group};
    header.seq = header.first_incomplete = UpdateSeq{seq};
    header.step = seq;
    UpdateBatch request = Pack(header, {data});
    return Await<UpdateResult>([&](UpdateDone done) {
             subject_->node().Update(std::move(request), absl::InfiniteFuture(), std::move(done));
           })
        .status();
  }

  // The weight that all columns of `row` have.
  float Weight(std::uint32_t group = 0, std::int64_t row = 0) {
    LookupPartData data;
    data.part.table = kTable;
    data.part.replica_group = group;
    data.part.column_end = kDim;
    data.ids = {RowId{row}};
    LookupBatch request = Pack(LookupBatch{}, {data});
    const auto result = Await<LookupResult>([&](LookupDone done) {
      subject_->node().Lookup(std::move(request), absl::InfiniteFuture(), {}, std::move(done));
    });
    EXPECT_THAT(result, IsOk());
    return result.ok() ? result->rows.As<float>()[0] : -1.0f;
  }

  void MakeSecondDeviceAGpu() {
    gpu_.emplace();
    options_.node.devices[1].kind = DeviceKind::kGpu;
    options_.node.gpus = {nullptr, &*gpu_};
  }

  void KillAndStart() {
    subject_->Kill();
    subject_->Start();
  }

  NodeSpec node_;
  JournaledNode::Options options_;
  TableSpec table_;
  std::optional<gpu::SimulatedDevice> gpu_;
  std::unique_ptr<JournaledNode> subject_;
};

TEST_F(JournalFailuresTest, AFullDiskRefusesUpdatesBeforeTheyAreAppliedAndHeals) {
  Start();
  subject_->disk().SetCapacity(40'000);
  std::uint64_t seq = 1;
  absl::Status status;
  while ((status = AddOne(seq)).ok()) ASSERT_LT(++seq, 100u);
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
  EXPECT_EQ(Weight(), static_cast<float>(seq - 1));
  subject_->disk().SetCapacity(1'000'000);
  // The log looks for room when an update is refused.
  AwaitFor(
      [&] {
        status = AddOne(seq);
        return status.code() != Code::kResourceExhausted;
      },
      absl::Seconds(60), "the log notices that there is room");
  ASSERT_THAT(status, IsOk());
  EXPECT_EQ(Weight(), static_cast<float>(seq));
  KillAndStart();
  EXPECT_EQ(Weight(), static_cast<float>(seq));
}

TEST_F(JournalFailuresTest, ABrokenLogRefusesUpdatesUntilARestartWhileLookupsGoOn) {
  Start();
  ASSERT_THAT(AddOne(1), IsOk());
  subject_->disk().FailAt(1, DiskFault::kError);
  EXPECT_EQ(AddOne(2).code(), Code::kUnavailable);  // Applied, and nobody was told so.
  EXPECT_EQ(AddOne(2).code(), Code::kUnavailable);  // A repetition promises no more.
  EXPECT_EQ(AddOne(3).code(), Code::kUnavailable);
  EXPECT_EQ(Weight(), 2.0f);
  KillAndStart();
  ASSERT_THAT(AddOne(2), IsOk());
  ASSERT_THAT(AddOne(3), IsOk());
  EXPECT_EQ(Weight(), 3.0f);
}

TEST_F(JournalFailuresTest, AnUpdateThatIsTooLargeForTheLogIsRefused) {
  Start();
  const absl::Status refused = AddOne(1, 8 * kRows);
  EXPECT_EQ(refused.code(), Code::kInvalidArgument) << refused;
  EXPECT_EQ(Weight(), 0.0f);
  EXPECT_THAT(AddOne(1), IsOk());
}

TEST_F(JournalFailuresTest, ANewTableIsNotInstalledWhenItsRecordIsNot) {
  Start();
  subject_->disk().FailAt(1, DiskFault::kError);
  table_.optimizer.learning_rate = 0.5f;
  EXPECT_EQ(subject_->node().InstallPlan(PlanOf("test", 2), kSelf).code(), Code::kUnavailable);
  EXPECT_EQ(subject_->node().plan()->version(), PlanVersion{1});
}

TEST_F(JournalFailuresTest, PlansOfAnotherClusterOrNodeAreRefusedAfterARestart) {
  Start();
  KillAndStart();
  EXPECT_EQ(subject_->journal().recovery().node.self, kSelf);
  const absl::Status other = subject_->node().InstallPlan(PlanOf("other", 1), kSelf);
  EXPECT_EQ(other.code(), Code::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), HasSubstr("cluster other"));
  node_.id = NodeId{2};
  const absl::Status renumbered = subject_->node().InstallPlan(PlanOf("test", 2), NodeId{2});
  EXPECT_EQ(renumbered.code(), Code::kFailedPrecondition);
  EXPECT_THAT(std::string(renumbered.message()), HasSubstr("node id 2"));
}

TEST_F(JournalFailuresTest, ANodeWithOtherDevicesDoesNotStart) {
  Start();
  ASSERT_THAT(AddOne(1), IsOk());
  subject_->Kill();
  JournaledNode::Options fewer = options_;
  fewer.node.devices.resize(1);
  BufferPool pool;
  const auto make_node = [&] { return ShardNode::Create(fewer.node, pool); };
  const absl::Status refused =
      NodeJournal::Open(subject_->disk(), fewer.journal, make_node).status();
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("record 2"));
  subject_->Start();
  EXPECT_EQ(Weight(), 1.0f);
}

TEST_F(JournalFailuresTest, WhatAGpuTakesAlongComesBackWithTheNextProcess) {
  constexpr std::int64_t kRowOnGpu = kRows - 1;
  MakeSecondDeviceAGpu();
  Start();
  ASSERT_THAT(AddOne(1), IsOk());
  // In the step: the update's record is written, and the other device has applied it.
  gpu_->Inject({gpu::SimulatedFault::At::kSynchronize, gpu::SimulatedFault::Kind::kStop, 0});
  EXPECT_EQ(AddOne(2).code(), Code::kUnavailable);
  EXPECT_EQ(AddOne(2).code(), Code::kUnavailable);
  subject_->Stop();
  gpu_.emplace();
  subject_->Start();
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(Weight(), 2.0f);
    EXPECT_EQ(Weight(/*group=*/0, kRowOnGpu), 2.0f);
    EXPECT_THAT(AddOne(2), IsOk());
  }
}

TEST_F(JournalFailuresTest, ARecordThatDoesNotFitIsDataLossAndNamed) {
  Start();
  ASSERT_THAT(AddOne(1), IsOk());
  subject_->Stop();
  {
    const auto ignore = [](const LogRecordView&) { return absl::OkStatus(); };
    const auto log = NodeLog::Open(subject_->disk(), options_.journal.log, ignore);
    ASSERT_THAT(log, IsOk());
    ASSERT_THAT((*log)->WriteControl(static_cast<std::uint16_t>(JournalKind::kSync), "x"), IsOk());
  }
  const absl::Status refused = subject_->TryStart();
  EXPECT_EQ(refused.code(), Code::kDataLoss) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("of the journal cannot be repeated"));
}

TEST_F(JournalFailuresTest, WithoutDurabilityTablesComeBackWithInitialValues) {
  options_.journal.level = Durability::kNone;
  Start();
  ASSERT_THAT(AddOne(1), IsOk());
  EXPECT_EQ(Weight(), 1.0f);
  KillAndStart();
  EXPECT_EQ(Weight(), 0.0f);
}

TEST_F(JournalFailuresTest, AnAveragingThatWasDueIsMadeUpFor) {
  table_.replica_groups = 2;
  table_.sync_every_steps = 1;
  Start();
  float mean = 0.0f;
  for (std::uint64_t seq = 1; seq <= 30; ++seq) {
    // The averaging is queued before the second update is answered; its record may be lost.
    ASSERT_THAT(AddOne(seq, kRows, 0), IsOk());
    ASSERT_THAT(AddOne(seq, 2 * kRows, 1), IsOk());
    mean += 1.5f;
    KillAndStart();
    ASSERT_EQ(Weight(0), mean);
    ASSERT_EQ(Weight(1), mean);
  }
}

TEST_F(JournalFailuresTest, AnAveragingThatAStoppedGpuCannotDoIsNotMadeUpFor) {
  table_.replica_groups = 2;
  MakeSecondDeviceAGpu();
  Start();
  ASSERT_THAT(AddOne(1, kRows, 0), IsOk());
  EXPECT_THAT(gpu_->Stop(absl::InternalError("test")), Not(IsOk()));
  const auto averaged = Await<SyncResult>([&](SyncDone done) {
    subject_->node().Sync({.tables = {kTable}, .plan_version = PlanVersion{1}},
                          absl::InfiniteFuture(), std::move(done));
  });
  EXPECT_EQ(averaged.status().code(), Code::kUnavailable) << averaged.status();
  subject_->Stop();
  gpu_.emplace();
  subject_->Start();
  EXPECT_EQ(Weight(0), 1.0f);
  EXPECT_EQ(Weight(1), 0.0f);
}

}  // namespace
}  // namespace embla::testing::journal_failures_test
