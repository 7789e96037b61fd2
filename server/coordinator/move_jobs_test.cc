// Jobs against nodes that run the real protocol, while messages are lost, repeated and reordered
// and processes restart.
#include "server/coordinator/move_jobs.h"

#include <random>
#include <set>
#include <string>

#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/move_world_test_support.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;
using ::testing::Not;

JobRequest Reshard(std::uint32_t shards) { return {.goal = ReshardGoal{"t", shards}}; }

// Three nodes of two devices; the table is on the first two.
struct Three {
  explicit Three(unsigned seed) : world(seed) {
    world.AddNode("a");
    world.AddNode("b");
    world.AddTable("t");
    world.AddNode("c");
    world.CoordinatorTick(absl::ZeroDuration());
  }
  absl::StatusOr<JobView> Start(const JobRequest& request) {
    auto view = world.coordinator().StartJob(request, world.harness().now());
    world.TakeEffects();
    return view;
  }
  JobView Get(std::uint64_t id) { return *world.coordinator().GetJob(id, world.harness().now()); }
  MoveWorld world;
};

JobRequest RandomJob(std::mt19937& random) {
  switch (random() % 4) {
    case 0:
      return Reshard(5 + random() % 2);
    case 1:
      return {.goal = DrainGoal{random() % 2 == 0 ? "a" : "b"}};
    case 2:  // Within nodes, all of it or most.
      return Reshard(1 + random() % 3);
    default:
      return {.goal = MoveGoal{"t", 3, 17, "c", 1}};
  }
}

TEST(MoveJobsRandom, EveryJobEndsAndEveryUnitHasOneOwner) {
  for (const std::uint32_t seed : embla::testing::TestSeeds(15)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Three three(seed);
    JobRequest request = RandomJob(random);
    request.units_in_flight = 1 + random() % 20;
    const auto started = three.Start(request);
    ASSERT_THAT(started, IsOk());
    const std::uint64_t id = started->job.id;
    for (int i = 0; i < 10000 && !IsOver(three.Get(id).job.state); ++i) {
      three.world.Step();
      if (i % 100 == 0) three.world.Check();
      if (HasFatalFailure()) return;
    }
    three.world.StopFaults();
    ASSERT_TRUE(three.world.RunToEnd(id, 200000));
    three.world.Settle();
    three.world.Check();
    three.world.CheckAtRest();
    const JobView end = three.Get(id);
    // Deadlines and restarts may abort a move three times: then the job says so.
    if (end.job.state == JobState::kFailed) {
      EXPECT_THAT(end.job.error, HasSubstr("3 attempts"));
    } else {
      EXPECT_EQ(end.job.state, JobState::kDone);
      EXPECT_EQ(end.job.units_moved, end.units_total);
    }
    if (HasFailure()) return;
  }
}

TEST(MoveJobsStart, ADryRunChangesNothing) {
  Three three(1);
  JobRequest request = Reshard(6);
  request.dry_run = true;
  const Revision before = three.world.harness().store().revision();
  const auto view = three.Start(request);
  ASSERT_THAT(view, IsOk());
  EXPECT_EQ(view->job.id, 0u);
  EXPECT_EQ(view->units_total, 8u);
  EXPECT_GT(view->bytes_total, 0);
  EXPECT_FALSE(view->rooms.empty());
  EXPECT_EQ(three.world.harness().store().revision(), before);
}

TEST(MoveJobsStart, TheNewestJobsAreToldWithoutTheirMoves) {
  Three three(1);
  const auto first = three.Start(Reshard(6));
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(three.Start(Reshard(2)), IsOk());
  const Coordinator& coordinator = three.world.coordinator();
  const absl::Time now = three.world.harness().now();
  const std::vector<JobView> both = coordinator.NewestJobs(5, now);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].job.id, 2u);
  EXPECT_EQ(both[1].units_total, first->units_total);
  EXPECT_EQ(both[1].bytes_total, first->bytes_total);
  EXPECT_FALSE(three.Get(1).job.runs.empty());
  EXPECT_TRUE(both[1].job.runs.empty());
  EXPECT_EQ(coordinator.NewestJobs(1, now).size(), 1u);
}

TEST(MoveJobsQueue, TheNextJobIsPlannedWhenItBegins) {
  Three three(1);
  ASSERT_THAT(three.Start(Reshard(6)), IsOk());
  const auto second = three.Start(Reshard(2));
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(second->job.state, JobState::kQueued);
  EXPECT_EQ(second->wait.what, "waits for job 1");
  EXPECT_EQ(second->units_total, 0u);
  three.world.RestartCoordinator();
  EXPECT_EQ(three.Get(2).job.state, JobState::kQueued);
  ASSERT_TRUE(three.world.RunToEnd(2, 200000));
  EXPECT_EQ(three.Get(1).job.state, JobState::kDone);
  EXPECT_EQ(three.Get(2).job.state, JobState::kDone);
  EXPECT_GT(three.Get(2).job.units_moved, 0u);
  std::set<DeviceId> devices;
  for (const Slice& slice : three.world.coordinator().GetPlan()->FindTable("t")->primary()) {
    devices.insert(slice.device);
  }
  EXPECT_EQ(devices.size(), 2u);
}

TEST(MoveJobsQueue, AQueuedJobCanBeCancelledAndOneThatCannotBePlannedFails) {
  Three three(1);
  ASSERT_THAT(three.Start(Reshard(6)), IsOk());
  ASSERT_THAT(three.Start(Reshard(2)), IsOk());
  ASSERT_THAT(three.Start({.goal = DrainGoal{"b"}}), IsOk());
  Coordinator& coordinator = three.world.coordinator();
  const absl::Time now = three.world.harness().now();
  EXPECT_EQ(coordinator.ControlJob(2, JobControl::kPause, now).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(coordinator.ControlJob(2, JobControl::kCancel, now)->job.state, JobState::kCancelled);
  three.world.Kill(*three.world.FindNode("c"));
  for (int i = 0; i < 60; ++i) three.world.CoordinatorTick(absl::Milliseconds(200));
  ASSERT_THAT(coordinator.ControlJob(1, JobControl::kCancel, three.world.harness().now()), IsOk());
  EXPECT_FALSE(IsOver(three.Get(3).job.state));
  three.world.Revive(*three.world.FindNode("c"));
  ASSERT_TRUE(three.world.RunToEnd(3, 1000000));
  EXPECT_TRUE(IsOver(three.Get(1).job.state));
}

TEST(MoveJobsQueue, IsBoundedAndRefusesWhatCanNeverBeDone) {
  Three three(1);
  ASSERT_THAT(three.Start(Reshard(6)), IsOk());
  EXPECT_EQ(three.Start({.goal = ReshardGoal{"nope", 2}}).status().code(),
            absl::StatusCode::kNotFound);
  for (std::size_t i = 0; i < kJobsQueuedMax; ++i) ASSERT_THAT(three.Start(Reshard(2)), IsOk());
  EXPECT_EQ(three.Start(Reshard(2)).status().code(), absl::StatusCode::kResourceExhausted);
}

// The newest hundred jobs push the oldest out, but never one that runs or waits.
TEST(MoveJobsQueue, AJobThatIsNotOverIsNeverDropped) {
  Three three(1);
  ASSERT_THAT(three.Start(Reshard(6)), IsOk());
  for (std::size_t i = 0; i < 2 * kJobsMax; ++i) {
    const auto queued = three.Start(Reshard(2));
    ASSERT_THAT(queued, IsOk());
    ASSERT_THAT(three.world.coordinator().ControlJob(queued->job.id, JobControl::kCancel,
                                                     three.world.harness().now()),
                IsOk());
  }
  EXPECT_EQ(three.Get(1).job.state, JobState::kRunning);
  EXPECT_EQ(three.world.coordinator().ListJobs(three.world.harness().now()).size(), kJobsMax);
}

TEST(MoveJobsStart, ATableThatIsMovedIsNotDropped) {
  Three three(1);
  ASSERT_THAT(three.Start(Reshard(6)), IsOk());
  const auto dropped = three.world.coordinator().DropTable("t", three.world.harness().now());
  EXPECT_EQ(dropped.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(MoveJobsStart, WithoutMovesItIsDoneAtOnce) {
  Three three(1);
  const auto view = three.Start(Reshard(4));
  ASSERT_THAT(view, IsOk());
  EXPECT_EQ(view->job.state, JobState::kDone);
  EXPECT_EQ(view->units_total, 0u);
}

TEST(MoveJobsStart, ManyUnitsAreCommittedAtOnce) {
  Three three(7);
  three.world.StopFaults();
  const PlanVersion before = three.world.coordinator().GetPlan()->version();
  const auto view = three.Start(Reshard(6));
  ASSERT_TRUE(three.world.RunToEnd(view->job.id, 100000));
  const auto versions = ToInt(three.world.coordinator().GetPlan()->version()) - ToInt(before);
  EXPECT_LT(versions, 8u);  // Fewer than units.
  const auto history = ReadHistory(three.world.coordinator().store(), 1);
  EXPECT_THAT((*history)[0].cause, HasSubstr("of table t moved by job 1"));
}

TEST(MoveJobsStart, UnitsChangeDevicesWithinTheirNodes) {
  Three three(11);
  three.world.StopFaults();
  const PlanVersion before = three.world.coordinator().GetPlan()->version();
  const auto down = three.Start(Reshard(2));
  ASSERT_THAT(down, IsOk());
  EXPECT_EQ(down->units_total, 12u);
  EXPECT_EQ(down->job.state, JobState::kRunning);
  for (const MoveRun& run : down->job.runs) EXPECT_EQ(run.from.node, run.to.node);
  ASSERT_TRUE(three.world.RunToEnd(down->job.id, 100000));
  EXPECT_EQ(three.Get(down->job.id).job.state, JobState::kDone);
  EXPECT_EQ(three.Get(down->job.id).job.units_moved, 12u);
  EXPECT_LT(ToInt(three.world.coordinator().GetPlan()->version()) - ToInt(before), 12u);
  three.world.Settle();
  three.world.Check();
  three.world.CheckAtRest();
  EXPECT_EQ(three.Start(Reshard(2))->job.state, JobState::kDone);
}

TEST(MoveJobsControl, PauseOpensNothingAndResumeGoesOn) {
  Three three(3);
  three.world.StopFaults();
  JobRequest request = Reshard(6);
  request.units_in_flight = 1;
  const std::uint64_t id = three.Start(request)->job.id;
  Coordinator& c = three.world.coordinator();
  ASSERT_THAT(c.ControlJob(id, JobControl::kPause, three.world.harness().now()), IsOk());
  for (int i = 0; i < 20000; ++i) three.world.Step();
  EXPECT_EQ(three.Get(id).job.state, JobState::kPaused);
  EXPECT_EQ(three.Get(id).job.units_moved, 1u);
  EXPECT_EQ(three.Get(id).units_open, 0u);
  ASSERT_THAT(c.ControlJob(id, JobControl::kResume, three.world.harness().now()), IsOk());
  three.world.TakeEffects();
  ASSERT_TRUE(three.world.RunToEnd(id, 100000));
  EXPECT_EQ(three.Get(id).job.state, JobState::kDone);
}

TEST(MoveJobsControl, CancelAbortsWhatIsOpen) {
  Three three(3);
  const std::uint64_t id = three.Start(Reshard(6))->job.id;
  Coordinator& c = three.world.coordinator();
  ASSERT_THAT(c.ControlJob(id, JobControl::kCancel, three.world.harness().now()), IsOk());
  EXPECT_EQ(three.Get(id).job.state, JobState::kCancelling) << "the sources are asked";
  three.world.TakeEffects();
  ASSERT_TRUE(three.world.RunToEnd(id, 100000));
  EXPECT_EQ(three.Get(id).job.state, JobState::kCancelled);
  EXPECT_EQ(c.ControlJob(id, JobControl::kResume, three.world.harness().now()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(c.ControlJob(99, JobControl::kPause, three.world.harness().now()).status().code(),
            absl::StatusCode::kNotFound);
  three.world.Settle();
  three.world.Check();
  three.world.CheckAtRest();
}

// The process of before has handed over units that the next one, on an older copy of the directory,
// owns by its log.
TEST(MoveJobsRandom, ANodeOnAnOlderCopyNeverTakesUpdatesOfWhatItHandedOver) {
  int restored_late = 0;
  for (const std::uint32_t seed : embla::testing::TestSeeds(40)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Three three(seed);
    const NodeId node = *three.world.FindNode("a");
    ASSERT_THAT(three.Start({.goal = DrainGoal{"a"}}), IsOk());
    const auto run = [&](unsigned steps) {
      for (unsigned i = 0; i < steps; ++i) {
        three.world.Step();
        if (i % 5 == 0) three.world.Check();
      }
    };
    run(random() % 400);
    three.world.CopyDirectory(node);
    run(random() % 1200);
    three.world.RestoreDirectory(node);
    if (three.Get(1).job.units_moved > 0) ++restored_late;
    ASSERT_TRUE(three.world.RunToEnd(1, 400000));
    EXPECT_EQ(three.Get(1).job.state, JobState::kDone) << three.Get(1).job.error;
    three.world.Settle();
    three.world.Check();
    three.world.CheckAtRest();
    EXPECT_FALSE(three.world.IsHeld(node));
  }
  EXPECT_GT(restored_late, 5);
}

TEST(MoveJobsFailure, ThreeRefusalsFailTheJob) {
  Three three(5);
  three.world.StopFaults();
  three.world.RefuseAll(true);
  const std::uint64_t id = three.Start(Reshard(6))->job.id;
  ASSERT_TRUE(three.world.RunToEnd(id, 200000));
  EXPECT_EQ(three.Get(id).job.state, JobState::kFailed);
  EXPECT_THAT(three.Get(id).job.error, HasSubstr("could not be moved in 3 attempts"));
  EXPECT_THAT(three.Get(id).job.error, HasSubstr("refused"));
  three.world.Settle();
  three.world.CheckAtRest();
}

TEST(MoveJobsFailure, ADeadNodeIsWaitedFor) {
  Three three(5);
  three.world.StopFaults();
  const std::uint64_t id = three.Start(Reshard(6))->job.id;
  const NodeId c = three.world.coordinator().GetPlan()->FindNode("c")->id;
  three.world.Kill(c);
  for (int i = 0; i < 100; ++i) three.world.CoordinatorTick(absl::Seconds(1));
  EXPECT_EQ(three.Get(id).job.state, JobState::kRunning);
  EXPECT_THAT(three.Get(id).wait.what, HasSubstr("waits for node c"));
  EXPECT_EQ(three.Get(id).wait.node, "c");
  three.world.Revive(c);
  ASSERT_TRUE(three.world.RunToEnd(id, 200000));
  EXPECT_EQ(three.Get(id).job.state, JobState::kDone);
}

TEST(MoveJobsDrain, TheNodeGetsNothingNewUntilItIsUndrained) {
  Three three(9);
  three.world.StopFaults();
  const std::uint64_t id = three.Start({.goal = DrainGoal{"c"}})->job.id;
  EXPECT_EQ(three.Get(id).job.state, JobState::kDone);  // The node had nothing to move.
  three.world.RestartCoordinator();
  Coordinator& c = three.world.coordinator();
  EXPECT_TRUE(c.Nodes()[2].drained);
  EXPECT_EQ(three.Start(Reshard(6)).status().code(), absl::StatusCode::kFailedPrecondition);
  const auto placed = PlanTableOf(c, CoordinatorHarness::Spec("u"),
                                  {.sharding = ShardingType::kRowWise, .nodes = {"c"}}, {});
  EXPECT_THAT(Message(placed.status()), HasSubstr("node c is drained"));
  ASSERT_THAT(three.Start({.goal = UndrainGoal{"c"}}), IsOk());
  EXPECT_FALSE(c.Nodes()[2].drained);
  EXPECT_THAT(three.Start(Reshard(6)), IsOk());
}

TEST(MoveJobsStart, RecordsOfADroppedTableAreForgotten) {
  Three three(2);
  three.world.StopFaults();
  ASSERT_TRUE(three.world.RunToEnd(three.Start(Reshard(6))->job.id, 100000));
  FailingStore& store = three.world.harness().store();
  EXPECT_FALSE(store.List("units/")->empty());
  Coordinator& c = three.world.coordinator();
  ASSERT_THAT(c.DropTable("t", three.world.harness().now()), IsOk());
  c.Tick(three.world.harness().now());
  EXPECT_TRUE(store.List("units/")->empty());
}

TEST(MoveJobRecords, RoundTrip) {
  MoveJob job{.id = 7, .description = "d", .error = "e", .runs = {}, .pauses = {}};
  job.runs = {{TableId{1}, 0, 3, 9, {NodeId{1}, 0}, {NodeId{2}, 1}, 1234}};
  job.pauses = {absl::Microseconds(5), absl::Microseconds(6), absl::Microseconds(7)};
  const auto read = MoveJobFromJson(MoveJobToJson(job));
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(*read, job);
  EXPECT_THAT(MoveJobFromJson("{}"), Not(IsOk()));
  const UnitRecord record{.owner = NodeId{1},
                          .epoch = UnitEpoch{2},
                          .committed = MoveId{1},
                          .move = MoveId{3},
                          .phase = MovePhase::kOpen,
                          .source = NodeId{1},
                          .target = NodeId{2}};
  EXPECT_EQ(*UnitRecordFromJson(UnitRecordToJson(record)), record);
  EXPECT_THAT(UnitRecordFromJson("{\"owner\": 1}"), Not(IsOk()));
}

}  // namespace
}  // namespace embla
