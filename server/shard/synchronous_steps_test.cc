// Ranks train a table with synchronous steps on several nodes, in any order of arrival, while units
// move: the rows are, bit for bit, those of one plain array that gets the same contributions.
#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/testing/status_matchers.h"
#include "core/planner/placement.h"
#include "core/rows/row_block.h"
#include "core/rows/stale_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/testing/random_table.h"
#include "server/shard/testing/table_model.h"
#include "server/shard/testing/unit_moves.h"

namespace embla::synchronous_steps_test {
namespace {

using ::embla::testing::Await;
using ::embla::testing::EncodeRows;
using ::embla::testing::IsOk;
using ::embla::testing::LocalCluster;
using ::embla::testing::Pack;
using ::embla::testing::StatusIs;
using ::embla::testing::TableModel;
using ::embla::testing::UnitMoves;
using ::embla::testing::UpdatePartData;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

constexpr TableId kTable{7};
constexpr std::uint64_t kSteps = 12;

using Gradients = std::map<std::int64_t, std::vector<float>>;  // By row.

TablePlan WithMembers(TablePlan plan, std::uint32_t ranks) {
  StepMembers members;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) members.ranks.push_back(Rank{rank});
  plan.steps.version = PlanVersion{1};
  plan.steps.changes = 1;
  plan.steps.members = {members};
  return plan;
}

// One rank's trainer: sends a step to every node that has units of the table, and again what is
// refused, until all of it has stepped.
class Trainer {
 public:
  Trainer(LocalCluster& cluster, const UnitMoves& moves, const TableSpec& spec, Rank rank)
      : cluster_(cluster), moves_(moves), spec_(spec), rank_(rank) {}

  void Step(std::uint64_t step, const Gradients& gradients, std::uint32_t seed) {
    std::mt19937 random(seed);
    step_ = step;
    gradients_ = &gradients;
    for (auto& [node, units] : ByOwner(AllUnits())) Send(node, units, random);
    while (true) {
      Reply reply;
      {
        MutexLock lock(mu_);
        if (open_ == 0) return;
        while (replies_.empty()) arrived_.Wait(mu_);
        reply = std::move(replies_.front());
        replies_.pop_front();
        --open_;
      }
      if (!reply.result.ok()) {
        const absl::Status& status = reply.result.status();
        // ResourceExhausted: ranks that ask again and again fill the queue, as trainers may.
        if (absl::IsUnavailable(status) || absl::IsResourceExhausted(status)) {
          Send(reply.node, reply.units, random);
          continue;
        }
        // The node's last unit of these columns has left it since the owners were asked. After any
        // other error the other ranks would wait for this one for ever.
        if (!AsksForNewerPlan(status)) {
          ADD_FAILURE() << "rank " << ToInt(rank_) << ", step " << step << ": " << status;
          std::abort();
        }
        for (auto& [node, units] : ByOwner(reply.units)) Send(node, units, random);
        continue;
      }
      UnitSet again;
      UnitSet elsewhere;
      for (const RefusedClaim& refused : reply.result->refused_claims) {
        const bool is_again = refused.reason == RefusedClaim::Reason::kAgain;
        // A node that had the unit knows which one it has gone to since.
        EXPECT_NE(refused.owner, reply.node);
        EXPECT_EQ(refused.owner != NodeId{}, refused.epoch > 1);
        (is_again ? again : elsewhere).Include(UnitSet(refused.units));
      }
      if (!again.empty()) Send(reply.node, again, random);
      for (auto& [node, units] : ByOwner(elsewhere)) Send(node, units, random);
    }
  }

 private:
  struct Reply {
    NodeId node{};
    UnitSet units;
    absl::StatusOr<UpdateResult> result = absl::UnknownError("none");
  };

  UnitSet AllUnits() const {
    UnitSet all;
    for (const UnitId& unit : moves_.units()) all.Include(Of(unit));
    return all;
  }
  static UnitSet Of(const UnitId& unit) {
    return UnitSet({unit.column_granule, unit.row_granule, unit.row_granule + 1});
  }
  std::map<NodeId, UnitSet> ByOwner(const UnitSet& units) const {
    const std::vector<NodeId> owners = moves_.Owners();
    std::map<NodeId, UnitSet> by_owner;
    for (std::size_t i = 0; i < owners.size(); ++i) {
      if (units.Meets(Of(moves_.units()[i]))) by_owner[owners[i]].Include(Of(moves_.units()[i]));
    }
    return by_owner;
  }

  void Send(NodeId node, const UnitSet& units, std::mt19937& random) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, UpdatePartData> parts;  // By columns.
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<float>> values;
    for (std::size_t i = 0; i < moves_.units().size(); ++i) {
      const UnitShape& shape = moves_.shape(i);
      if (!units.Meets(Of(moves_.units()[i]))) continue;
      const std::pair columns(shape.column_begin, shape.column_end);
      for (const auto& [row, gradient] : *gradients_) {
        if (row < shape.row_begin || row >= shape.row_end) continue;
        UpdatePartData& data = parts[columns];
        data.part.table = kTable;
        data.part.clipped = true;
        data.part.column_begin = columns.first;
        data.part.column_end = columns.second;
        data.ids.push_back(RowId{row});
        values[columns].insert(values[columns].end(), gradient.begin() + columns.first,
                               gradient.begin() + columns.second);
      }
    }
    std::vector<UpdatePartData> all;
    for (auto& [columns, data] : parts) {
      data.gradients = EncodeRows(values[columns], columns.second - columns.first, DType::kFloat32);
      all.push_back(std::move(data));
    }
    UpdateBatch header;
    header.session = SessionId{10 + ToInt(rank_)};
    header.seq = UpdateSeq{step_ + 1};
    header.first_incomplete = header.seq;
    header.step = step_;
    header.claim = StepClaim{.table = kTable, .rank = rank_, .resumes = false, .units = units};
    int times = 1;
    {
      MutexLock lock(mu_);
      // A few at a time: each may be refused, and be sent twice again.
      if (random() % 4 == 0 && open_ < kTwiceBelow) times = 2;
      open_ += times;
    }
    for (int i = 0; i < times; ++i) {
      auto packed = Pack(header, all);
      cluster_.node(node).Update(std::move(packed), absl::InfiniteFuture(),
                                 [this, node, units](absl::StatusOr<UpdateResult> result) {
                                   MutexLock lock(mu_);
                                   replies_.push_back({node, units, std::move(result)});
                                   arrived_.NotifyAll();
                                 });
    }
  }

  static constexpr int kTwiceBelow = 16;

  LocalCluster& cluster_;
  const UnitMoves& moves_;
  const TableSpec spec_;
  const Rank rank_;
  std::uint64_t step_ = 0;
  const Gradients* gradients_ = nullptr;

  Mutex mu_;
  CondVar arrived_;
  int open_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Reply> replies_ ABSL_GUARDED_BY(mu_);
};

class SynchronousStepsTest : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  static TablePlan RandomPlan(std::mt19937& random, const std::vector<NodeSpec>& nodes) {
    TableSpec spec = embla::testing::RandomNumerics(random);
    spec.id = kTable;
    spec.name = "t";
    spec.rows = 40 + static_cast<std::int64_t>(random() % 200);
    spec.dim = 8;
    spec.row_granules = 4 + random() % 12;
    spec.column_granule_width = 4;
    spec.sync.emplace();
    spec.SetDefaults();
    PlacementRequest request;
    request.min_partition = 4;
    request.sharding =
        NeedsRowStatistic(spec.optimizer)
            ? embla::testing::Pick(random, {ShardingType::kTableWise, ShardingType::kRowWise,
                                            ShardingType::kTableRowWise})
            : embla::testing::Pick(random, {ShardingType::kColumnWise, ShardingType::kRowWise,
                                            ShardingType::kGridShard});
    const absl::StatusOr<TablePlan> plan = PlaceTable(spec, request, nodes, {});
    EMBLA_CHECK(plan.ok());
    return *plan;
  }

  static Gradients RandomGradients(std::mt19937& random, const TableSpec& spec) {
    Gradients gradients;
    for (std::uint32_t i = random() % 60; i > 0; --i) {
      std::vector<float>& row = gradients[static_cast<std::int64_t>(random() % spec.rows)];
      row.resize(spec.dim);
      for (float& value : row) value = std::normal_distribution<float>()(random);
    }
    return gradients;
  }

  static void ExpectRows(LocalCluster& cluster, const UnitMoves& moves, const TableModel& model) {
    for (std::size_t i = 0; i < moves.units().size(); ++i) {
      const UnitShape& shape = moves.shape(i);
      ShardNode::RowsQuery query;
      query.table = kTable;
      query.row_begin = shape.row_begin;
      query.row_end = shape.row_end;
      std::size_t rows = 0;
      const absl::Status status =
          cluster.node(moves.OwnerOf(i)).ReadRows(query, [&](Buffer bytes) -> absl::Status {
            absl::StatusOr<RowBlock> block = DecodeRowBlock(bytes.bytes());
            if (!block.ok()) return block.status();
            const ColumnRange columns{block->shape.column_begin, block->shape.column_end};
            for (std::size_t r = 0; r < block->rows.size(); ++r) {
              const auto weights = model.Weights(ToInt(block->rows[r]), columns);
              const auto got = block->weights.subspan(r * weights.size(), weights.size());
              EXPECT_TRUE(std::equal(weights.begin(), weights.end(), got.begin()))
                  << "row " << ToInt(block->rows[r]);
              ++rows;
            }
            return absl::OkStatus();
          });
      ASSERT_THAT(status, IsOk());
      EXPECT_GT(rows, 0u);
    }
  }
};

TEST_P(SynchronousStepsTest, GiveTheBitsOfOneArrayWhileUnitsMove) {
  const std::uint32_t seed = GetParam();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  LocalCluster::Options options = embla::testing::RandomCluster(seed, random);
  options.nodes = std::max(options.nodes, 2u);
  LocalCluster cluster(options);
  const TablePlan plan = RandomPlan(random, cluster.specs());
  const std::uint32_t ranks = 1 + random() % 4;
  ASSERT_THAT(cluster.Install({WithMembers(plan, ranks)}), IsOk());
  UnitMoves moves(cluster, plan);

  std::vector<std::vector<Gradients>> all(kSteps);
  TableModel model(plan.spec);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      all[step].push_back(RandomGradients(random, plan.spec));
      for (const auto& [row, gradient] : all[step].back()) model.Add(row, gradient);
    }
    model.Step(step);
  }

  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Trainer trainer(cluster, moves, plan.spec, Rank{rank});
      for (std::uint64_t step = 0; step < kSteps; ++step) {
        const auto way = static_cast<std::uint32_t>(seed * 100 + step * 10 + rank);
        trainer.Step(step, all[step][rank], way);
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    const std::size_t unit = random() % moves.units().size();
    const NodeId target{1 + static_cast<std::uint32_t>(random() % options.nodes)};
    const std::uint32_t device = random() % options.devices_per_node;
    if (target == moves.OwnerOf(unit)) continue;
    const bool in_vain = random() % 4 == 0;
    ASSERT_THAT(in_vain ? moves.MoveInVain(unit, target, device) : moves.Move(unit, target, device),
                IsOk());
  }
  for (std::thread& thread : threads) thread.join();
  ExpectRows(cluster, moves, model);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SynchronousStepsTest, ::testing::Range(1u, 41u));

// One node; what it answers, case by case.
class ContributionsTest : public ::testing::Test {
 protected:
  static constexpr NodeId kNode{1};
  static constexpr std::int64_t kRows = 40;
  static constexpr std::uint32_t kDim = 4;
  using Result = absl::StatusOr<UpdateResult>;
  // An answer that may be on its way.
  struct Pending {
    Mutex mu;
    CondVar changed;
    std::optional<Result> result ABSL_GUARDED_BY(mu);

    bool is_answered() {
      MutexLock lock(mu);
      return result.has_value();
    }
    Result Wait() {
      MutexLock lock(mu);
      while (!result.has_value()) changed.Wait(mu);
      return *result;
    }
  };
  using PendingPtr = std::shared_ptr<Pending>;

  void SetUp() override { Install({Rank{0}, Rank{1}}); }

  // Ranks from step 0 on.
  void Install(std::vector<Rank> ranks) {
    plan_ = embla::testing::TableOfFourUnits(kRows, kDim, {kNode, 0});
    plan_.spec.sync.emplace().steps_ahead_max = 2;
    plan_.steps.version = PlanVersion{++version_};
    plan_.steps.members = {{.ranks = std::move(ranks)}};
    ASSERT_THAT(cluster_.Install({plan_}), IsOk());
  }

  struct Sent {
    std::uint32_t rank = 0;
    std::uint64_t step = 0;
    std::vector<std::int64_t> rows = {};
    float gradient = -1.0f;
    std::uint32_t granules = 4;  // Row granules that it claims, from the first.
    SessionId session = {};      // 0: 10 + rank.
    UpdateSeq seq = {};          // 0: step + 1.
    std::optional<float> learning_rate = {};
    bool resumes = false;
    DType wire_dtype = DType::kFloat32;
    bool clipped = true;
    PlanVersion plan = {};
  };
  PendingPtr Send(const Sent& sent) {
    UpdatePartData data;
    data.part.table = kTable;
    data.part.column_end = kDim;
    data.part.clipped = sent.clipped;
    data.part.learning_rate = sent.learning_rate;
    for (const std::int64_t row : sent.rows) data.ids.push_back(RowId{row});
    data.gradients = EncodeRows(std::vector<float>(sent.rows.size() * kDim, sent.gradient), kDim,
                                sent.wire_dtype);
    UpdateBatch header;
    header.plan_version = sent.plan;
    header.session = sent.session == SessionId{} ? SessionId{10 + sent.rank} : sent.session;
    header.seq = sent.seq == UpdateSeq{} ? UpdateSeq{sent.step + 1} : sent.seq;
    header.first_incomplete = UpdateSeq{1};
    header.step = sent.step;
    header.wire_dtype = sent.wire_dtype;
    header.claim = StepClaim{.table = kTable,
                             .rank = Rank{sent.rank},
                             .resumes = sent.resumes,
                             .units = UnitSet({0, 0, sent.granules})};
    auto packed = Pack(header, {data});
    auto pending = std::make_shared<Pending>();
    cluster_.node(kNode).Update(std::move(packed), absl::InfiniteFuture(),
                                [pending](Result result) {
                                  MutexLock lock(pending->mu);
                                  pending->result = std::move(result);
                                  pending->changed.NotifyAll();
                                });
    return pending;
  }
  absl::Status Refused(const Sent& sent) { return Send(sent)->Wait().status(); }

  // Waits for what was sent before.
  float Weight(std::int64_t row) {
    embla::testing::LookupPartData data;
    data.part.table = kTable;
    data.part.column_end = kDim;
    data.ids = {RowId{row}};
    const auto rows = cluster_.Lookup(kNode, Pack(LookupBatch{}, {data}));
    EMBLA_CHECK(rows.ok());
    return rows->rows.As<float>()[0];
  }
  ShardNode& node() { return cluster_.node(kNode); }

  LocalCluster cluster_{{}};
  TablePlan plan_;
  std::uint64_t version_ = 0;
};

TEST_F(ContributionsTest, WaitForAllRanksAndStepOnceWithTheirSum) {
  const PendingPtr first = Send({.rank = 1, .rows = {3, 5}});
  EXPECT_EQ(Weight(3), 0.0f);
  EXPECT_FALSE(first->is_answered());
  const PendingPtr second = Send({.rank = 0, .rows = {5}});
  EXPECT_THAT(first->Wait().status(), IsOk());
  EXPECT_THAT(second->Wait().status(), IsOk());
  EXPECT_EQ(Weight(3), 1.0f);
  EXPECT_EQ(Weight(5), 2.0f);
}

TEST_F(ContributionsTest, StepWithoutARow) {
  const PendingPtr first = Send({.rank = 0});
  EXPECT_THAT(Refused({.rank = 1}), IsOk());
  EXPECT_THAT(first->Wait().status(), IsOk());
  EXPECT_EQ(node().StepReports().at(0).first_unmade, 1u);
}

TEST_F(ContributionsTest, AgainAreDuplicates) {
  const PendingPtr first = Send({.rank = 0, .rows = {3}});
  const PendingPtr again = Send({.rank = 0, .rows = {3}});  // Waits with the first.
  EXPECT_THAT(Refused({.rank = 1}), IsOk());
  EXPECT_THAT(first->Wait().status(), IsOk());
  EXPECT_THAT(again->Wait().status(), IsOk());
  const Result late = Send({.rank = 0, .rows = {3}})->Wait();
  ASSERT_THAT(late.status(), IsOk());
  EXPECT_TRUE(late->duplicate);
  EXPECT_EQ(Weight(3), 1.0f);
}

TEST_F(ContributionsTest, AreOnePerRankAndStep) {
  const PendingPtr first = Send({.rank = 0, .rows = {3}});
  EXPECT_THAT(Refused({.rank = 0, .seq = UpdateSeq{9}}), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Refused({.rank = 1, .learning_rate = 0.5f}), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Refused({.rank = 1, .wire_dtype = DType::kFloat16}),
              StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Refused({.rank = 1}), IsOk());
  EXPECT_THAT(first->Wait().status(), IsOk());
}

TEST_F(ContributionsTest, TakeTheLearningRateThatAllSay) {
  const PendingPtr first = Send({.rank = 0, .rows = {3}, .learning_rate = 0.5f});
  EXPECT_THAT(Refused({.rank = 1, .rows = {3}, .learning_rate = 0.5f}), IsOk());
  EXPECT_EQ(Weight(3), 1.0f);
}

TEST_F(ContributionsTest, OfAStepThatIsOverNameTheNext) {
  const PendingPtr first = Send({.rank = 0});
  EXPECT_THAT(Refused({.rank = 1}), IsOk());
  const absl::Status over = Refused({.rank = 0, .seq = UpdateSeq{9}});
  EXPECT_THAT(over, StatusIs(Code::kFailedPrecondition));
  EXPECT_THAT(std::string(over.message()), HasSubstr("step 0 is over, step 1 is next"));
  EXPECT_FALSE(AsksForNewerPlan(over)) << over;
  // A rank's next session is told that the step has its contribution.
  const Result resumed =
      Send({.rank = 0, .session = SessionId{99}, .seq = UpdateSeq{1}, .resumes = true})->Wait();
  ASSERT_THAT(resumed.status(), IsOk());
  EXPECT_TRUE(resumed->duplicate);
}

TEST_F(ContributionsTest, OfOthersThanMembersAreRefused) {
  EXPECT_THAT(Refused({.rank = 2}), StatusIs(Code::kFailedPrecondition));
  // The sender may know of a change that the node has not heard of.
  EXPECT_THAT(Refused({.rank = 2, .plan = PlanVersion{7}}), StatusIs(Code::kUnavailable));
}

TEST_F(ContributionsTest, AreTakenAFewStepsAhead) {
  std::vector<PendingPtr> ahead;
  for (std::uint64_t step = 0; step <= 2; ++step) {
    ahead.push_back(Send({.rank = 0, .step = step, .rows = {3}}));
  }
  EXPECT_THAT(Refused({.rank = 0, .step = 3}), StatusIs(Code::kResourceExhausted));
  for (std::uint64_t step = 0; step <= 2; ++step) {
    EXPECT_THAT(Refused({.rank = 1, .step = step}), IsOk());
    EXPECT_THAT(ahead[step]->Wait().status(), IsOk());
  }
  EXPECT_EQ(Weight(3), 3.0f);
}

TEST_F(ContributionsTest, ThatAreMalformedAreRefusedAndOthersGoOn) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(Refused({.rows = {3}, .gradient = nan}), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Refused({.rows = {3, 3}}), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Refused({.rows = {3}, .clipped = false}), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Refused({.rows = {kRows}}), StatusIs(Code::kOutOfRange));
  EXPECT_THAT(Refused({.rows = {35}, .granules = 3}), StatusIs(Code::kFailedPrecondition));
  EXPECT_THAT(Refused({.granules = 5}), StatusIs(Code::kInvalidArgument));
  // Units that never moved have one record of updates.
  const absl::Status part = Refused({.rows = {3}, .granules = 3});
  EXPECT_THAT(part, StatusIs(Code::kFailedPrecondition));
  EXPECT_THAT(std::string(part.message()), HasSubstr("refresh the plan"));
  const PendingPtr first = Send({.rank = 0, .rows = {3}});
  EXPECT_THAT(Refused({.rank = 1}), IsOk());
  EXPECT_EQ(Weight(3), 1.0f);
}

TEST_F(ContributionsTest, AreNeededWhereATableHasSynchronousSteps) {
  UpdatePartData data;
  data.part.table = kTable;
  data.part.column_end = kDim;
  data.ids = {RowId{3}};
  data.gradients = EncodeRows(std::vector<float>(kDim, 1.0f), kDim, DType::kFloat32);
  UpdateBatch header;
  header.session = SessionId{10};
  header.seq = header.first_incomplete = UpdateSeq{1};
  const absl::Status refused = cluster_.Update(kNode, Pack(header, {data})).status();
  EXPECT_THAT(refused, StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("synchronous steps"));
}

TEST_F(ContributionsTest, OfClosedSessionsAreDropped) {
  const PendingPtr first = Send({.rank = 0, .rows = {3}});
  ClosedSessions closed;
  closed.refused.Insert(SessionId{10});
  ASSERT_THAT(node().CloseSessions(closed), IsOk());
  EXPECT_THAT(first->Wait().status(), StatusIs(Code::kPermissionDenied));
  const PendingPtr second = Send({.rank = 1, .rows = {3}});
  EXPECT_THAT(Refused({.rank = 0, .rows = {3}, .session = SessionId{50}}), IsOk());
  EXPECT_THAT(second->Wait().status(), IsOk());
  EXPECT_EQ(Weight(3), 2.0f);
}

TEST_F(ContributionsTest, StandStillWhileMembersChange) {
  const PendingPtr first = Send({.rank = 0, .rows = {3}});
  plan_.steps = *Opened(plan_.steps, {.kind = MemberChange::Kind::kClose, .ranks = {Rank{1}}},
                        PlanVersion{++version_});
  ASSERT_THAT(cluster_.Install({plan_}), IsOk());
  const PendingPtr second = Send({.rank = 1, .rows = {3}});
  EXPECT_EQ(Weight(3), 0.0f);
  const StepReport report = node().StepReports().at(0);
  EXPECT_EQ(report.change, plan_.steps.changes);
  plan_.steps = Decided(plan_.steps, report.first_unmade, PlanVersion{++version_});
  ASSERT_THAT(cluster_.Install({plan_}), IsOk());
  EXPECT_THAT(first->Wait().status(), IsOk());
  EXPECT_THAT(second->Wait().status(), StatusIs(Code::kFailedPrecondition));
  EXPECT_EQ(Weight(3), 1.0f);
}

TEST_F(ContributionsTest, ThatWaitAreAnsweredWhenTheNodeStops) {
  const PendingPtr first = Send({.rank = 0, .rows = {3}});
  node().BeginStop();
  EXPECT_THAT(first->Wait().status(), StatusIs(Code::kUnavailable));
  EXPECT_THAT(Refused({.rank = 1}), StatusIs(Code::kUnavailable));
}

TEST_F(ContributionsTest, ThatWaitAreAnsweredWhenTheTableGoes) {
  const PendingPtr first = Send({.rank = 0, .rows = {3}});
  EXPECT_EQ(Weight(3), 0.0f);
  ASSERT_THAT(cluster_.Install({}), IsOk());
  EXPECT_THAT(first->Wait().status(), StatusIs(Code::kNotFound));
}

}  // namespace
}  // namespace embla::synchronous_steps_test
