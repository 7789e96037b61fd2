// Acknowledgements of a node whose tables ask for levels of their own: each waits for the highest
// level of the tables that it is about, and for no more. The disk's writes or syncs are held back
// meanwhile: an answer that came before them needed none. docs/decisions/0034-durability-per-table.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "core/plan/names.h"
#include "core/planner/placement.h"
#include "core/rows/row_block.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/journal/testing/journaled_node.h"
#include "server/shard/testing/local_cluster.h"

namespace embla::testing::table_durability_test {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;
using Gate = SimulatedStorage::Gate;

constexpr std::uint32_t kDim = 4;
constexpr std::int64_t kRows = 40;
constexpr TableId kOfNode{1};  // At the level of the node, which is written.
constexpr TableId kQueued{2};
constexpr TableId kSynced{3};
constexpr TableId kGroups{4};  // Synced, in two replica groups.
constexpr TableId kZch{5};     // Synced, of any ids.
constexpr TableId kSteps{6};   // Synced, with synchronous steps of one rank.
constexpr TableId kAll[] = {kOfNode, kQueued, kSynced, kGroups, kZch, kSteps};

TableSpec SpecOf(TableId id) {
  TableSpec spec;
  spec.id = id;
  spec.name = absl::StrCat("t", ToInt(id));
  spec.rows = kRows;
  spec.dim = kDim;
  spec.durability = TableDurability::kSynced;
  if (id == kOfNode) spec.durability = TableDurability::kNode;
  if (id == kQueued) spec.durability = TableDurability::kQueued;
  if (id == kGroups) spec.replica_groups = 2;
  if (id == kZch) spec.zch = ZchSpec{.buckets = 1};
  if (id == kSteps) spec.sync.emplace();
  spec.SetDefaults();
  return spec;
}

// The answer to a call, set by another thread.
template <typename Result>
class Pending {
 public:
  void Set(absl::StatusOr<Result> result) {
    const MutexLock lock(mu_);
    result_ = std::move(result);
    changed_.NotifyAll();
  }
  bool is_answered() const {
    const MutexLock lock(mu_);
    return result_.has_value();
  }
  absl::StatusOr<Result> Wait() const {
    const MutexLock lock(mu_);
    while (!result_.has_value()) changed_.Wait(mu_);
    return *result_;
  }

 private:
  mutable Mutex mu_;
  mutable CondVar changed_;
  std::optional<absl::StatusOr<Result>> result_ ABSL_GUARDED_BY(mu_);
};
template <typename Result>
using PendingPtr = std::shared_ptr<Pending<Result>>;

UpdatePartData PartOf(TableId table) {
  UpdatePartData data;
  data.part.table = table;
  data.part.column_end = kDim;
  data.part.clipped = table == kSteps;
  data.ids = {RowId{1}, RowId{2}};
  data.gradients =
      EncodeRows(std::vector<float>(data.ids.size() * kDim, 1.0f), kDim, DType::kFloat32);
  return data;
}

PendingPtr<UpdateResult> Send(ShardNode& node, const std::vector<TableId>& tables,
                              std::uint64_t seq) {
  std::vector<UpdatePartData> parts;
  for (const TableId table : tables) parts.push_back(PartOf(table));
  UpdateBatch header;
  header.session = SessionId{1};
  header.seq = UpdateSeq{seq};
  header.first_incomplete = UpdateSeq{1};
  header.step = seq - 1;
  if (tables.front() == kSteps) {
    header.claim = StepClaim{
        .table = kSteps, .rank = Rank{0}, .units = UnitSet({0, 0, SpecOf(kSteps).row_granules})};
  }
  UpdateBatch request = Pack(header, parts);
  auto pending = std::make_shared<Pending<UpdateResult>>();
  node.Update(std::move(request), absl::InfiniteFuture(),
              [pending](absl::StatusOr<UpdateResult> result) { pending->Set(std::move(result)); });
  return pending;
}

class TableDurabilityTest : public ::testing::Test {
 protected:
  TableDurabilityTest() {
    spec_.id = NodeId{1};
    spec_.name = "n0";
    spec_.address = "127.0.0.1:1";
    spec_.devices.resize(2, DeviceSpec{DeviceKind::kCpu, std::int64_t{1} << 26});
    for (const TableId id : kAll) tables_.push_back(SpecOf(id));
  }
  ~TableDurabilityTest() override {
    if (subject_ == nullptr) return;
    subject_->disk().Release(Gate::kWrite);
    subject_->disk().Release(Gate::kSync);
  }

  void Start(Durability level = Durability::kWritten) {
    JournaledNode::Options options;
    options.node.name = spec_.name;
    options.node.devices = spec_.devices;
    options.journal.level = level;
    // No sync comes that nobody waits for.
    options.journal.log.sync_delay = absl::InfiniteDuration();
    subject_ = std::make_unique<JournaledNode>(options);
    Install();
  }
  void Install() {
    std::vector<TablePlan> placed;
    for (const TableSpec& spec : tables_) {
      const absl::StatusOr<TablePlan> table =
          PlaceTable(spec, {.sharding = ShardingType::kRowWise}, {spec_}, TableList(placed));
      ASSERT_THAT(table, IsOk());
      placed.push_back(*table);
      if (!spec.sync.has_value()) continue;
      placed.back().steps.version = PlanVersion{1};
      placed.back().steps.members = {{.ranks = {Rank{0}}}};
    }
    const auto plan = std::make_shared<const Plan>(PlanVersion{++version_}, "test",
                                                   std::vector{spec_}, std::move(placed));
    ASSERT_THAT(plan->Validate(), IsOk());
    ASSERT_THAT(subject_->node().InstallPlan(plan, spec_.id), IsOk());
  }

  PendingPtr<UpdateResult> Send(const std::vector<TableId>& tables) {
    return table_durability_test::Send(subject_->node(), tables, ++seq_);
  }
  void Hold(Gate gate) { subject_->disk().Hold(gate); }

  void AwaitRecordBehind(std::uint64_t end) {
    AwaitFor([&] { return subject_->journal().end() > end; }, absl::Seconds(30), "a record");
  }
  // Every record that is in the log has been written when this returns.
  void AwaitWritten() { ASSERT_THAT(Send({kOfNode})->Wait(), IsOk()); }

  // Requires: syncs are held.
  template <typename Result>
  void ExpectWaitsForSync(const PendingPtr<Result>& pending) {
    AwaitWritten();
    EXPECT_FALSE(pending->is_answered());
    subject_->disk().Release(Gate::kSync);
    EXPECT_THAT(pending->Wait().status(), IsOk());
  }

  NodeSpec spec_;
  std::vector<TableSpec> tables_;
  std::uint64_t version_ = 0;
  std::uint64_t seq_ = 0;
  std::unique_ptr<JournaledNode> subject_;
};

TEST_F(TableDurabilityTest, ASyncedTableWaitsForTheDiskAndOthersOfTheNodeDoNot) {
  Start();
  Hold(Gate::kSync);
  const auto synced = Send({kSynced});
  EXPECT_THAT(Send({kQueued})->Wait(), IsOk());
  ExpectWaitsForSync(synced);
}

TEST_F(TableDurabilityTest, AQueuedTableDoesNotWaitForAWrite) {
  Start();
  Hold(Gate::kWrite);
  const auto written = Send({kOfNode});
  EXPECT_THAT(Send({kQueued})->Wait(), IsOk());
  EXPECT_FALSE(written->is_answered());
  subject_->disk().Release(Gate::kWrite);
  EXPECT_THAT(written->Wait(), IsOk());
}

TEST_F(TableDurabilityTest, ATableMayAskForLessThanItsNode) {
  Start(Durability::kSynced);
  Hold(Gate::kSync);
  const auto synced = Send({kOfNode});
  EXPECT_THAT(Send({kQueued})->Wait(), IsOk());
  EXPECT_FALSE(synced->is_answered());
  subject_->disk().Release(Gate::kSync);
  EXPECT_THAT(synced->Wait(), IsOk());
}

TEST_F(TableDurabilityTest, ARequestWaitsForTheHighestLevelOfItsTables) {
  Start();
  Hold(Gate::kSync);
  ExpectWaitsForSync(Send({kQueued, kSynced, kOfNode}));
  Hold(Gate::kSync);
  ExpectWaitsForSync(Send({kSynced, kQueued}));
}

TEST_F(TableDurabilityTest, ARepetitionWaitsAsWell) {
  Start();
  Hold(Gate::kSync);
  const auto first = Send({kSynced});
  const auto again = table_durability_test::Send(subject_->node(), {kSynced}, seq_);
  ExpectWaitsForSync(again);
  EXPECT_TRUE(again->Wait()->duplicate);
  EXPECT_THAT(first->Wait(), IsOk());
}

TEST_F(TableDurabilityTest, AveragingsAndSweepsWait) {
  Start();
  Hold(Gate::kSync);
  std::uint64_t before = subject_->journal().end();
  const auto averaged = std::make_shared<Pending<SyncResult>>();
  subject_->node().Sync({.tables = {kGroups}}, absl::InfiniteFuture(),
                        [averaged](absl::StatusOr<SyncResult> result) { averaged->Set(result); });
  AwaitRecordBehind(before);
  ExpectWaitsForSync(averaged);
  Hold(Gate::kSync);
  before = subject_->journal().end();
  const auto swept = std::make_shared<Pending<SweepResult>>();
  subject_->node().SweepTable(
      {.table = kZch,
       .sweep = {.rule = ZchSweep::Rule::kIdle, .step = 9, .before_step = 9},
       .rows = {{0, SpecOf(kZch).rows}}},
      absl::InfiniteFuture(),
      [swept](absl::StatusOr<SweepResult> result) { swept->Set(std::move(result)); });
  AwaitRecordBehind(before);
  ExpectWaitsForSync(swept);
}

TEST_F(TableDurabilityTest, AStepWaitsAndSoDoesAContributionThatIsInOne) {
  Start();
  Hold(Gate::kSync);
  // Numbers of steps and of updates go together here.
  const auto contribution = table_durability_test::Send(subject_->node(), {kSteps}, 1);
  const auto again = table_durability_test::Send(subject_->node(), {kSteps}, 1);
  AwaitFor([&] { return subject_->node().StepReports().at(0).first_unmade == 1; },
           absl::Seconds(30), "the step is made");
  // A repetition, not a part of the step.
  std::uint64_t before = subject_->journal().end();
  const auto late = table_durability_test::Send(subject_->node(), {kSteps}, 1);
  AwaitRecordBehind(before);
  AwaitWritten();
  EXPECT_FALSE(contribution->is_answered());
  EXPECT_FALSE(again->is_answered());
  ExpectWaitsForSync(late);
  EXPECT_TRUE(late->Wait()->duplicate);
  EXPECT_THAT(contribution->Wait(), IsOk());
  EXPECT_THAT(again->Wait(), IsOk());
}

TEST_F(TableDurabilityTest, TheLevelChangesWhileTrainingGoesOnAndOutlivesTheProcess) {
  Start();
  tables_[0].durability = TableDurability::kSynced;
  tables_[2].durability = TableDurability::kWritten;
  Install();
  subject_->Kill();
  subject_->Start();  // Knows its tables by its journal only.
  seq_ += 100;        // Any numbers that are new.
  Hold(Gate::kSync);
  const auto raised = Send({kOfNode});
  EXPECT_THAT(Send({kSynced})->Wait(), IsOk());  // Asks for written now.
  EXPECT_FALSE(raised->is_answered());
  subject_->disk().Release(Gate::kSync);
  EXPECT_THAT(raised->Wait(), IsOk());
}

TEST_F(TableDurabilityTest, ANodeThatKeepsNoUpdatesRefusesTablesThatAskForMore) {
  Start(Durability::kNone);
  EXPECT_THAT(Send({kOfNode})->Wait(), IsOk());
  for (const TableId table : {kQueued, kSynced, kSteps}) {
    const absl::Status refused = Send({kOfNode, table})->Wait().status();
    EXPECT_THAT(refused,
                StatusIs(Code::kFailedPrecondition,
                         ::testing::AllOf(HasSubstr("t" + std::to_string(ToInt(table))),
                                          HasSubstr("--data-dir"), HasSubstr("durability=node"))));
  }
  EXPECT_THAT(table_durability_test::Send(subject_->node(), {kSteps}, 1)->Wait().status(),
              StatusIs(Code::kFailedPrecondition, HasSubstr("durability=node")));
  for (TableSpec& spec : tables_) spec.durability = TableDurability::kNode;
  Install();
  EXPECT_THAT(Send({kSynced})->Wait(), IsOk());
}

TEST_F(TableDurabilityTest, ANodeWithoutADirectoryRefusesThemAsWell) {
  LocalCluster cluster({});
  TablePlan plan{.spec = SpecOf(kSynced), .replicas = {{{0, kRows, 0, kDim, {NodeId{1}, 0}}}}};
  ASSERT_THAT(cluster.Install({plan}), IsOk());
  EXPECT_THAT(table_durability_test::Send(cluster.node(0), {kSynced}, 1)->Wait().status(),
              StatusIs(Code::kFailedPrecondition, HasSubstr("this node keeps none")));
}

// A node of two, with the copies of two data_parallel tables each.
class CopiesDurabilityTest : public ::testing::Test {
 protected:
  CopiesDurabilityTest() {
    for (std::uint32_t n = 0; n < 2; ++n) {
      NodeSpec& spec = specs_.emplace_back();
      spec.id = NodeId{n + 1};
      spec.name = absl::StrCat("n", n);
      spec.address = absl::StrCat("127.0.0.1:", n + 1);
      spec.devices.resize(1, DeviceSpec{DeviceKind::kCpu, std::int64_t{1} << 26});
      JournaledNode::Options options;
      options.node.name = spec.name;
      options.node.devices = spec.devices;
      options.journal.log.sync_delay = absl::InfiniteDuration();
      nodes_.push_back(std::make_unique<JournaledNode>(options));
      nodes_[n]->node().set_replica_transport(&transport_);
      transport_.SetNode(spec.id, &nodes_[n]->node());
    }
  }
  ~CopiesDurabilityTest() override {
    for (std::uint32_t n = 0; n < 2; ++n) {
      nodes_[n]->disk().Release(Gate::kSync);
      transport_.SetNode(specs_[n].id, nullptr);
      nodes_[n]->Stop();
    }
  }

  std::vector<NodeSpec> specs_;
  LocalTransport transport_{1};
  std::vector<std::unique_ptr<JournaledNode>> nodes_;
};

TEST_F(CopiesDurabilityTest, ACopyHasAnUpdateAtTheLevelOfItsTableBeforeThePrimaryAnswers) {
  std::vector<TablePlan> tables;
  for (const TableId id : {kOfNode, kSynced}) {
    TablePlan& table = tables.emplace_back();
    table.spec = SpecOf(id);
    table.sharding = ShardingType::kDataParallel;
    table.replicas = {{{0, kRows, 0, kDim, {NodeId{1}, 0}}}, {{0, kRows, 0, kDim, {NodeId{2}, 0}}}};
  }
  const auto plan = std::make_shared<const Plan>(PlanVersion{1}, "test", specs_, tables);
  ASSERT_THAT(plan->Validate(), IsOk());
  for (std::uint32_t n = 0; n < 2; ++n) {
    ASSERT_THAT(nodes_[n]->node().InstallPlan(plan, specs_[n].id), IsOk());
  }
  for (const TableId id : {kOfNode, kSynced}) {
    AwaitFor([&] { return nodes_[1]->node().ViewCopy(id).serves; }, absl::Seconds(30),
             "the copy serves lookups");
  }
  nodes_[1]->disk().Hold(Gate::kSync);
  ShardNode& primary = nodes_[0]->node();
  const auto synced = Send(primary, {kSynced}, 1);
  EXPECT_THAT(Send(primary, {kOfNode}, 2)->Wait(), IsOk());
  EXPECT_FALSE(synced->is_answered());
  nodes_[1]->disk().Release(Gate::kSync);
  EXPECT_THAT(synced->Wait(), IsOk());
}

}  // namespace
}  // namespace embla::testing::table_durability_test
