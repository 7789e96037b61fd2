// Plans for the copies of data_parallel tables, and jobs that carry them out with nodes that answer
// when told to.
#include <algorithm>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/coordinator_test_support.h"
#include "server/coordinator/move_jobs.h"
#include "server/migration/copy_orders.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Kind = CopyChange::Kind;

constexpr std::int64_t kMemory = 1 << 20;

NodeSpec Node(std::uint32_t id, std::int64_t memory = kMemory) {
  return {.id = NodeId{id},
          .name = "n" + std::to_string(id),
          .address = "h:1",
          .devices = {{DeviceKind::kCpu, memory}}};
}

// Copies on the nodes, the primary first.
TablePlan Copied(const std::vector<std::uint32_t>& nodes) {
  TablePlan table{.spec = {.id = TableId{1}, .name = "t", .rows = 100, .dim = 16},
                  .sharding = ShardingType::kDataParallel,
                  .replicas = {}};
  table.spec.SetDefaults();
  for (const std::uint32_t node : nodes) {
    table.replicas.push_back({{.row_begin = 0,
                               .row_end = 100,
                               .column_begin = 0,
                               .column_end = 16,
                               .device = {NodeId{node}, 0}}});
  }
  return table;
}

struct Step {
  Kind kind;
  std::uint32_t node;
  bool operator==(const Step&) const = default;
};
void PrintTo(const Step& step, std::ostream* out) {
  *out << static_cast<int>(step.kind) << " on " << step.node;
}

std::vector<Step> StepsOf(const MovePlan& moves) {
  std::vector<Step> steps;
  for (const CopyChange& change : moves.copies) {
    steps.push_back({change.kind, ToInt(change.device.node)});
  }
  return steps;
}

class CopyPlan : public ::testing::Test {
 protected:
  MoveScope Scope() {
    MoveScope scope{.plan = plan_, .live = {}, .drained = drained_};
    for (const NodeSpec& node : plan_.nodes()) scope.live.insert(node.id);
    for (const NodeId node : dead_) scope.live.erase(node);
    return scope;
  }

  std::set<NodeId> drained_, dead_;
  Plan plan_{PlanVersion{1}, "c", {Node(1), Node(2), Node(3)}, {Copied({1, 2, 3})}};
};

TEST_F(CopyPlan, ADrainRemovesAReplica) {
  const auto moves = PlanDrain(Scope(), NodeId{2});
  ASSERT_THAT(moves, IsOk());
  EXPECT_THAT(StepsOf(*moves), ElementsAre(Step{Kind::kRemove, 2}));
  EXPECT_EQ(moves->units(), 1u);
  EXPECT_EQ(moves->bytes(), 0);
}

TEST_F(CopyPlan, APrimaryIsDrainedWhileTheTableHasTwoCopies) {
  EXPECT_THAT(StepsOf(*PlanDrain(Scope(), NodeId{1})),
              ElementsAre(Step{Kind::kRemove, 3}, Step{Kind::kLead, 2}, Step{Kind::kRemove, 1},
                          Step{Kind::kAdd, 3}));
  drained_ = {NodeId{2}};
  EXPECT_THAT(StepsOf(*PlanDrain(Scope(), NodeId{1})),
              ElementsAre(Step{Kind::kRemove, 2}, Step{Kind::kLead, 3}, Step{Kind::kRemove, 1}));
}

TEST_F(CopyPlan, TheOnlyCopyIsMadeElsewhereBeforeItGoes) {
  plan_ = Plan(PlanVersion{1}, "c", {Node(1), Node(2), Node(3)}, {Copied({1})});
  const auto moves = PlanDrain(Scope(), NodeId{1});
  ASSERT_THAT(moves, IsOk());
  EXPECT_THAT(StepsOf(*moves),
              ElementsAre(Step{Kind::kAdd, 2}, Step{Kind::kLead, 2}, Step{Kind::kRemove, 1}));
}

TEST_F(CopyPlan, ReshardSetsTheNumberOfCopies) {
  plan_ = Plan(PlanVersion{1}, "c", {Node(1), Node(2), Node(3)}, {Copied({2, 3})});
  EXPECT_THAT(StepsOf(*PlanReshard(Scope(), "t", 3)), ElementsAre(Step{Kind::kAdd, 1}));
  EXPECT_THAT(StepsOf(*PlanReshard(Scope(), "t", 2)), IsEmpty());
  EXPECT_THAT(StepsOf(*PlanReshard(Scope(), "t", 1)), ElementsAre(Step{Kind::kRemove, 3}));
  EXPECT_EQ(PlanReshard(Scope(), "t", 4).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(PlanReshard(Scope(), "t", 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(CopyPlan, RebalanceGivesACopyToEveryNodeWithRoom) {
  plan_ = Plan(PlanVersion{1}, "c", {Node(1), Node(2), Node(3), Node(4, 10)}, {Copied({2})});
  drained_ = {NodeId{3}};
  EXPECT_THAT(StepsOf(*PlanRebalance(Scope())), ElementsAre(Step{Kind::kAdd, 1}));
}

TEST_F(CopyPlan, NodesThatAreDownStandInTheWay) {
  dead_ = {NodeId{1}};
  EXPECT_EQ(PlanDrain(Scope(), NodeId{2}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(PlanMove(Scope(), "t", 0, 1, {NodeId{2}, 0}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// A coordinator and nodes that install every plan and then say how their copies are.
class CopyJobs : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"a", "b", "c"}) nodes_.push_back(c_.Register(name));
    c_.CreateOn("t", nodes_, {.sharding = ShardingType::kDataParallel});
  }

  std::vector<NodeId> Copies() {
    std::vector<NodeId> nodes;
    for (const DeviceId device : CopiesOf(*c_->GetPlan()->FindTable("t"))) {
      nodes.push_back(device.node);
    }
    return nodes;
  }
  const std::string& NameOf(NodeId node) { return c_->GetPlan()->FindNode(node)->name; }

  JobView Start(const JobGoal& goal) {
    const auto view = c_->StartJob({.goal = goal}, c_.now());
    EXPECT_THAT(view, IsOk());
    return *view;
  }
  JobView Get() { return c_->ListJobs(c_.now()).front(); }

  // Time passes; questions about copies are answered by the plan, unless their node is silent.
  void Turn(const std::set<NodeId>& silent = {}) {
    c_.Advance(absl::Milliseconds(200));
    for (const NodeId node : nodes_) ASSERT_THAT(c_.Install(node), IsOk());
    c_->Tick(c_.now());
    for (Effect& effect : c_->TakeEffects()) {
      const auto* const orders = std::get_if<SendOrders>(&effect);
      if (orders == nullptr || silent.contains(orders->node)) continue;
      for (const UnitOrder& order : orders->orders) Answer(orders->node, order);
    }
  }
  void Answer(NodeId node, const UnitOrder& order) {
    ASSERT_TRUE(IsCopy(order.unit));
    const std::vector<NodeId> copies = Copies();
    UnitReport::Kind kind = kCopyGone;
    if (std::ranges::count(copies, node) > 0) kind = kCopyServes;
    if (copies.front() == node) kind = kCopyLeads;
    const UnitReport reports[] = {AnswerAboutCopy(order.unit.table, PlanOf(order), kind)};
    c_->OnMoveReports(node, reports, c_.now());
  }
  void Restart() {
    c_.Restart();
    for (const NodeId node : nodes_) c_.Register(NameOf(node));
  }

  CoordinatorHarness c_;
  std::vector<NodeId> nodes_;
};

TEST_F(CopyJobs, ADrainEndsWithTheCopyGoneOverRestartsOfTheCoordinator) {
  const NodeId away = Copies().back();
  const JobView dry = *c_->StartJob({.goal = DrainGoal{NameOf(away)}, .dry_run = true}, c_.now());
  EXPECT_EQ(dry.units_total, 1u);
  EXPECT_EQ(Copies().size(), 3u);
  Start(DrainGoal{NameOf(away)});
  EXPECT_EQ(c_->DropTable("t", c_.now()).status().code(), absl::StatusCode::kFailedPrecondition);
  for (int i = 0; i < 10; ++i) {
    Turn({away});
    if (i % 3 == 0) Restart();
  }
  EXPECT_EQ(Copies().size(), 2u);
  EXPECT_THAT(Get().wait.what, HasSubstr("waits for node " + NameOf(away) + " to give up"));
  EXPECT_EQ(Get().wait.node, NameOf(away));
  ASSERT_THAT(c_->ControlJob(1, JobControl::kCancel, c_.now()), IsOk());
  Turn({away});
  EXPECT_EQ(Get().job.state, JobState::kCancelling);  // It is committed, and must be heard of.
  for (int i = 0; i < 10; ++i) Turn();
  EXPECT_EQ(Get().job.state, JobState::kCancelled);
  EXPECT_THAT(ReadHistory(c_->store(), 1)->front().cause, HasSubstr("removed by job 1"));
}

TEST_F(CopyJobs, ANodeThatIsBackGetsItsCopyByRebalance) {
  const NodeId away = Copies().back();
  const NodeId primary = Copies().front();
  Start(DrainGoal{NameOf(away)});
  for (int i = 0; i < 10; ++i) Turn({primary});
  ASSERT_EQ(Copies().size(), 2u);
  EXPECT_THAT(Get().wait.what, HasSubstr("to do without the copy that was removed"));
  for (int i = 0; i < 10; ++i) Turn();
  EXPECT_EQ(Get().job.state, JobState::kDone);
  Start(UndrainGoal{NameOf(away)});
  Start(RebalanceGoal{});
  EXPECT_EQ(Get().bytes_total, CopyBytes(*c_->GetPlan()->FindTable("t")));
  for (int i = 0; i < 3; ++i) Turn({away});
  EXPECT_EQ(Get().job.state, JobState::kRunning);
  for (int i = 0; i < 10; ++i) Turn();
  EXPECT_EQ(Get().job.state, JobState::kDone);
  EXPECT_EQ(Copies().back(), away);
}

TEST_F(CopyJobs, APrimaryIsDrainedOverRestartsOfTheCoordinator) {
  const NodeId away = Copies().front();
  Start(DrainGoal{NameOf(away)});
  for (int i = 0; i < 60; ++i) {
    Turn();
    if (i < 40 && i % 8 == 0) Restart();
  }
  EXPECT_EQ(Get().job.state, JobState::kDone) << Get().job.error;
  EXPECT_EQ(Copies().size(), 2u);
  EXPECT_THAT(Copies(), Not(::testing::Contains(away)));
}

TEST_F(CopyJobs, AJobIsReadAsItWasWritten) {
  MoveJob job{.id = 7, .description = "d", .error = "", .runs = {}, .pauses = {}};
  EXPECT_EQ(*MoveJobFromJson(MoveJobToJson(job)), job);
  EXPECT_THAT(MoveJobToJson(job), Not(HasSubstr("copies")));
  job.copies = {{.kind = Kind::kAdd, .table = TableId{3}, .device = {NodeId{2}, 1}, .bytes = 12}};
  EXPECT_EQ(*MoveJobFromJson(MoveJobToJson(job)), job);
}

}  // namespace
}  // namespace embla
