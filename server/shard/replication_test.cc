// Tables with a copy on every node: the copies agree bit for bit whatever the network loses,
// repeats and delays, whoever restarts, and an acknowledged update is on every copy.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/testing/await.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/metrics/metrics.h"
#include "core/planner/placement.h"
#include "core/rows/row_block.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/copy_state.h"
#include "server/shard/testing/local_cluster.h"
#include "server/shard/testing/table_model.h"

namespace embla::testing {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;
using Kind = ReplicaMessage::Kind;

TableSpec Spec() {
  TableSpec spec;
  spec.id = TableId{1};
  spec.name = "shared";
  spec.rows = 3000;  // Several row blocks per snapshot.
  spec.dim = 128;
  spec.dtype = DType::kFloat16;
  spec.rounding = Rounding::kStochastic;
  spec.optimizer.kind = OptimizerKind::kAdam;
  spec.SetDefaults();
  return spec;
}

class ReplicationTest : public ::testing::Test {
 protected:
  void Start(std::uint32_t nodes, std::uint32_t seed = 1) {
    LocalCluster::Options options;
    options.nodes = nodes;
    options.devices_per_node = 2;
    options.seed = seed;
    options.metrics = &metrics_;
    cluster_ = std::make_unique<LocalCluster>(options);
    spec_ = Spec();
    model_ = std::make_unique<TableModel>(spec_);
    Install();
    cluster_->AwaitCopies(spec_.id);
    primary_ = cluster_->plan()->tables()[0].primary()[0].device.node;
    random_.seed(seed);
  }

  void Install() {
    PlacementRequest request;
    request.sharding = ShardingType::kDataParallel;
    const absl::StatusOr<TablePlan> table = PlaceTable(spec_, request, cluster_->specs(), {});
    ASSERT_THAT(table, IsOk());
    ASSERT_THAT(cluster_->Install({*table}), IsOk());
  }

  // An update of rows that are `group` modulo `groups`.
  UpdatePartData RandomPart(std::uint64_t group = 0, std::uint64_t groups = 1) {
    UpdatePartData data;
    data.part.table = spec_.id;
    data.part.column_end = spec_.dim;
    std::vector<float> gradients;
    for (int i = 0; i < 5; ++i) {
      const std::uint64_t row = random_() % (spec_.rows / groups) * groups + group;
      data.ids.push_back(RowId{static_cast<std::int64_t>(row)});
      for (std::uint32_t c = 0; c < spec_.dim; ++c) gradients.push_back(uniform_(random_));
    }
    data.gradients = EncodeRows(gradients, spec_.dim, DType::kFloat32);
    for (std::size_t i = 0; i < data.ids.size(); ++i) {
      model_->Add(ToInt(data.ids[i]),
                  {gradients.begin() + i * spec_.dim, gradients.begin() + (i + 1) * spec_.dim});
    }
    return data;
  }

  UpdateBatch Header(std::uint64_t seq) const {
    UpdateBatch header;
    header.plan_version = cluster_->plan()->version();
    header.session = SessionId{3};
    header.seq = UpdateSeq{seq};
    header.first_incomplete = UpdateSeq{seq};
    header.step = seq;
    return header;
  }

  absl::StatusOr<UpdateResult> Send(std::uint64_t seq, const UpdatePartData& part,
                                    absl::Duration timeout = absl::Minutes(1)) {
    return cluster_->Update(primary_, Pack(Header(seq), {part}), timeout);
  }

  // The answer when a replica is down: with deadlines that grow until the update is applied here
  // before its deadline.
  absl::Status SendToDeadReplica(std::uint64_t seq, const UpdatePartData& part) {
    absl::Duration timeout = absl::Milliseconds(50);
    absl::Status status;
    do {
      status = Send(seq, part, timeout).status();
      timeout *= 2;
    } while (status.code() == Code::kDeadlineExceeded);  // A call that timed out had no effect.
    return status;
  }

  // A new update, acknowledged, on the model too.
  void UpdateOnce(std::uint64_t seq) {
    const absl::StatusOr<UpdateResult> result = Send(seq, RandomPart());
    ASSERT_THAT(result, IsOk());
    EXPECT_FALSE(result->duplicate);
    model_->Step(seq);
  }

  // New updates, of rows of their own, all sent before the first is answered; those of which
  // nothing is known are sent again.
  void UpdateAtOnce(std::uint64_t first, std::uint64_t end) {
    std::vector<UpdatePartData> parts;
    for (std::uint64_t seq = first; seq < end; ++seq) {
      parts.push_back(RandomPart(seq - first, end - first));
      model_->Step(seq);
    }
    std::vector<std::future<absl::Status>> answers;
    for (std::uint64_t seq = first; seq < end; ++seq) {
      UpdateBatch request = Pack(Header(seq), {parts[seq - first]});
      request.first_incomplete = UpdateSeq{first};
      auto answer = std::make_shared<std::promise<absl::Status>>();
      answers.push_back(answer->get_future());
      cluster_->node(primary_).Update(std::move(request), absl::InfiniteFuture(),
                                      [answer](const absl::StatusOr<UpdateResult>& result) {
                                        answer->set_value(result.status());
                                      });
    }
    for (std::future<absl::Status>& answer : answers) EXPECT_THAT(answer.get(), IsOk());
  }

  // A trainer with one update under way, of rows that are its own, and of which it sends the next
  // one as soon as that is answered.
  class BusyTrainer {
   public:
    BusyTrainer(ReplicationTest& test, SessionId session, std::uint64_t group, std::uint64_t groups)
        : test_(test), session_(session), group_(group), groups_(groups) {
      Send();
    }
    void Look() {
      if (answer_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
      End();
      Send();
    }
    void End() { EXPECT_THAT(answer_.get(), IsOk()); }

   private:
    void Send() {
      UpdateBatch header = test_.Header(++seq_);
      header.session = session_;
      UpdateBatch request = Pack(header, {test_.RandomPart(group_, groups_)});
      test_.model_->Step(seq_);
      const auto answer = std::make_shared<std::promise<absl::Status>>();
      answer_ = answer->get_future();
      test_.cluster_->node(test_.primary_)
          .Update(std::move(request), absl::InfiniteFuture(),
                  [answer](const absl::StatusOr<UpdateResult>& result) {
                    answer->set_value(result.status());
                  });
    }

    ReplicationTest& test_;
    const SessionId session_;
    const std::uint64_t group_;
    const std::uint64_t groups_;
    std::uint64_t seq_ = 0;
    std::future<absl::Status> answer_;
  };

  // By a plan; returns what it was.
  std::vector<Slice> TakeCopyAway(NodeId node) {
    TablePlan table = cluster_->plan()->tables()[0];
    const auto it = std::ranges::find_if(table.replicas, [node](const std::vector<Slice>& copy) {
      return copy.front().device.node == node;
    });
    std::vector<Slice> copy = std::move(*it);
    table.replicas.erase(it);
    EXPECT_THAT(cluster_->Install({table}), IsOk());
    AwaitFor([&] { return !cluster_->node(node).ViewCopy(spec_.id).is_here; }, absl::Seconds(30),
             "the copy is gone");
    return copy;
  }

  std::uint32_t ReplicaIndex() const { return ToInt(primary_) == 1 ? 1 : 0; }

  // Whether `node`'s copy serves and is the model, bit for bit, state included.
  bool IsCurrent(NodeId node) {
    bool equal = true;
    const absl::Status status =
        cluster_->node(node).ReadRows({spec_.id, 0, spec_.rows, {}, true}, [&](Buffer encoded) {
          const absl::StatusOr<RowBlock> block = DecodeRowBlock(encoded.bytes());
          const ColumnRange columns{0, spec_.dim};
          const std::size_t row_bytes = RowBytes(spec_.dtype, spec_.dim);
          for (std::size_t i = 0; i < block->rows.size(); ++i) {
            const std::vector<std::byte> weights = model_->Weights(ToInt(block->rows[i]), columns);
            const std::vector<float> state = model_->State(ToInt(block->rows[i]), columns);
            equal = equal &&
                    std::memcmp(weights.data(), block->weights.data() + i * row_bytes, row_bytes) ==
                        0 &&
                    std::memcmp(state.data(), block->state.data() + i * state.size(),
                                state.size() * sizeof(float)) == 0;
          }
          return absl::OkStatus();
        });
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
    return equal && status.ok();
  }

  // A copy that is made has every acknowledged update, and serves once it has heard so.
  void AwaitServing(NodeId node) {
    const auto serves = [&] {
      return cluster_->node(node)
          .ReadRows({spec_.id, 0, spec_.rows, {}, true},
                    [](const Buffer&) { return absl::OkStatus(); })
          .ok();
    };
    AwaitFor(serves, absl::Seconds(30), "the replica serves");
  }

  void ExpectAllCurrent() {
    for (const NodeSpec& node : cluster_->specs()) EXPECT_TRUE(IsCurrent(node.id)) << node.name;
  }

  TableSpec spec_;
  std::unique_ptr<TableModel> model_;
  Metrics metrics_;  // Outlives the cluster.
  std::unique_ptr<LocalCluster> cluster_;
  NodeId primary_{};
  std::mt19937 random_;
  std::uniform_real_distribution<float> uniform_{-1.0f, 1.0f};
};

TEST_F(ReplicationTest, AnAcknowledgedUpdateIsOnEveryCopy) {
  Start(3);
  for (std::uint64_t seq = 1; seq <= 10; ++seq) {
    UpdateOnce(seq);
    ExpectAllCurrent();
  }
  EXPECT_EQ(cluster_->transport().messages(Kind::kRows), 0u);  // Fresh copies need none.
}

TEST_F(ReplicationTest, UpdatesElsewhereNameThePrimary) {
  Start(2);
  const absl::Status status =
      cluster_->Update(cluster_->specs()[ReplicaIndex()].id, Pack(Header(1), {RandomPart()}))
          .status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("go to node ", cluster_->specs()[ToInt(primary_) - 1].name)));
}

TEST_F(ReplicationTest, LossesRepetitionsAndDelaysChangeNothing) {
  const std::uint32_t seed = TestSeed();
  SCOPED_TRACE(::testing::Message() << "EMBLA_TEST_SEED=" << seed);
  Start(3, seed);
  cluster_->transport().SetFaults({.lost_request = 150, .lost_answer = 150, .repeated_later = 200});
  for (std::uint64_t seq = 1; seq <= 60; ++seq) UpdateOnce(seq);
  ExpectAllCurrent();
}

// The backlog keeps 8, so at most 8 are sent at a time.
TEST_F(ReplicationTest, UpdatesThatOvertakeEachOtherNeedNoSnapshot) {
  const std::uint32_t seed = TestSeed();
  SCOPED_TRACE(::testing::Message() << "EMBLA_TEST_SEED=" << seed);
  Start(3, seed);
  cluster_->transport().SetFaults({.overtaken = 400});
  for (std::uint64_t seq = 1; seq <= 150; seq += 6) UpdateAtOnce(seq, seq + 6);
  ExpectAllCurrent();
  EXPECT_EQ(cluster_->transport().messages(Kind::kRows), 0u);
  EXPECT_LE(cluster_->transport().messages(Kind::kUpdate), 310u) << "150, to two replicas";
}

TEST_F(ReplicationTest, SeveralAtOnceSurviveLossesRepetitionsAndDelays) {
  const std::uint32_t seed = TestSeed();
  SCOPED_TRACE(::testing::Message() << "EMBLA_TEST_SEED=" << seed);
  Start(3, seed);
  cluster_->transport().SetFaults(
      {.lost_request = 60, .lost_answer = 60, .repeated_later = 150, .overtaken = 200});
  for (std::uint64_t seq = 1; seq <= 150; seq += 6) UpdateAtOnce(seq, seq + 6);
  ExpectAllCurrent();
}

// A copy that has not done what is said to give it everything must not believe it.
TEST_F(ReplicationTest, ACopyThatLacksUpdatesDoesNotServeForBeingTold) {
  Start(2);
  for (std::uint64_t seq = 1; seq <= 3; ++seq) UpdateOnce(seq);
  cluster_->transport().SetFaults({.lost_request = 1000});
  cluster_->Restart(ReplicaIndex());
  ShardNode& replica = cluster_->node(ReplicaIndex());
  const auto probe = [&](std::uint64_t order, std::uint64_t life) {
    ReplicaMessage message;
    message.content = CopyProbe{spec_.id, 77, order};
    message.term = cluster_->plan()->version();
    message.life = life;
    message.serves = true;
    return Await<ReplicaAck>([&](ReplicaDone done) {
      replica.ApplyReplicated(std::move(message), absl::InfiniteFuture(), std::move(done));
    });
  };
  const absl::StatusOr<ReplicaAck> ack = probe(3, 0);
  ASSERT_THAT(ack, IsOk());
  EXPECT_EQ(ack->order, 0u);
  ASSERT_THAT(probe(3, ack->life), IsOk());
  ASSERT_THAT(probe(3, ack->life), IsOk());  // Behind whatever the one before has begun.
  EXPECT_FALSE(replica.ViewCopy(spec_.id).serves);
  ASSERT_THAT(probe(0, ack->life), IsOk());
  AwaitFor([&] { return replica.ViewCopy(spec_.id).serves; }, absl::Seconds(30),
           "a copy that has all it is told of serves");
}

TEST_F(ReplicationTest, AnUpdateThatIsNotTheNextOneIsRefusedAndWaitsAfterAProbe) {
  Start(2);
  cluster_->transport().SetFaults({.lost_request = 1000});
  cluster_->Restart(ReplicaIndex());
  ShardNode& replica = cluster_->node(ReplicaIndex());
  const auto send = [&](Kind kind, std::uint64_t order) {
    ReplicaMessage message;
    message.content = CopyProbe{spec_.id, 77, order};
    if (kind == Kind::kUpdate) {
      message.content = CopiedUpdate{spec_.id, 77, order, Pack(Header(order), {RandomPart()})};
    }
    message.term = message.plan_version = cluster_->plan()->version();
    auto answer = std::make_shared<std::promise<absl::StatusOr<ReplicaAck>>>();
    replica.ApplyReplicated(
        std::move(message), absl::InfiniteFuture(),
        [answer](absl::StatusOr<ReplicaAck> ack) { answer->set_value(std::move(ack)); });
    return answer->get_future();
  };
  EXPECT_EQ(send(Kind::kUpdate, 2).get().status().code(), Code::kUnavailable);
  EXPECT_EQ(send(Kind::kProbe, 2).get()->order, 0u);
  auto second = send(Kind::kUpdate, 2);
  EXPECT_EQ(send(Kind::kUpdate, 1).get()->order, 1u);
  EXPECT_EQ(second.get()->order, 2u);
  auto refused = send(Kind::kUpdate, 4);
  EXPECT_EQ(send(Kind::kProbe, 4).get()->order, 2u);
  EXPECT_EQ(refused.get().status().code(), Code::kUnavailable);
  // Nobody sends the one before it any more: the node's end must not wait for that.
  auto at_stop = send(Kind::kUpdate, 4);
  replica.BeginStop();
  EXPECT_EQ(at_stop.get().status().code(), Code::kUnavailable);
}

TEST_F(ReplicationTest, AnUpdateThatWaitsIsAnsweredWhenItsNodeOrTableGoes) {
  Start(2);
  UpdateOnce(1);
  const auto wait = [&] {
    ReplicaMessage message;
    message.content = CopiedUpdate{spec_.id, 77, 3, Pack(Header(3), {RandomPart()})};
    message.term = message.plan_version = cluster_->plan()->version();
    ReplicaMessage probe;
    probe.content = CopyProbe{.table = spec_.id, .reign = 77};
    probe.term = message.term;
    auto answer = std::make_shared<std::promise<absl::Status>>();
    ShardNode& replica = cluster_->node(ReplicaIndex());
    EXPECT_THAT(Await<ReplicaAck>([&](ReplicaDone done) {
                  replica.ApplyReplicated(std::move(probe), absl::InfiniteFuture(),
                                          std::move(done));
                }),
                IsOk());
    replica.ApplyReplicated(
        std::move(message), absl::InfiniteFuture(),
        [answer](const absl::StatusOr<ReplicaAck>& ack) { answer->set_value(ack.status()); });
    return answer->get_future();
  };
  cluster_->transport().SetFaults({.lost_request = 1000});
  cluster_->Restart(ReplicaIndex());
  std::future<absl::Status> answer = wait();
  cluster_->Restart(ReplicaIndex());
  EXPECT_EQ(answer.get().code(), Code::kUnavailable);
  answer = wait();
  TablePlan table = cluster_->plan()->tables()[0];
  std::erase_if(table.replicas, [&](const std::vector<Slice>& copy) {
    return copy.front().device.node == cluster_->specs()[ReplicaIndex()].id;
  });
  ASSERT_THAT(cluster_->Install({table}), IsOk());
  EXPECT_EQ(answer.get().code(), Code::kUnavailable);
}

TEST_F(ReplicationTest, ADeadReplicaIsUnavailableAndTheRetryWaitsForIt) {
  Start(2);
  UpdateOnce(1);
  cluster_->TakeDown(ReplicaIndex());
  const UpdatePartData part = RandomPart();
  for (int attempt = 0; attempt < 2; ++attempt) {
    const absl::Status status = SendToDeadReplica(2, part);
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("node ", cluster_->specs()[ReplicaIndex()].name,
                                       ", which has a copy")));
  }
  cluster_->Restart(ReplicaIndex());
  const absl::StatusOr<UpdateResult> result = Send(2, part);
  ASSERT_THAT(result, IsOk());
  EXPECT_TRUE(result->duplicate);
  model_->Step(2);
  AwaitServing(cluster_->specs()[ReplicaIndex()].id);
  ExpectAllCurrent();
}

TEST_F(ReplicationTest, LagIsShownWhileUpdatesWaitForAReplica) {
  Start(2);
  const Gauge lag = metrics_.MakeGauge(MetricNamed("embla_replication_lag_updates"), {"shared"});
  UpdateOnce(1);
  EXPECT_EQ(lag.value(), 0.0);
  cluster_->TakeDown(ReplicaIndex());
  std::atomic<bool> is_acknowledged = false;
  UpdateBatch request = Pack(Header(2), {RandomPart()});
  cluster_->node(primary_).Update(
      std::move(request), absl::InfiniteFuture(),
      [&](const absl::StatusOr<UpdateResult>&) { is_acknowledged = true; });
  AwaitFor([&] { return lag.value() == 1.0; }, absl::Seconds(30), "the update counts as behind");
  EXPECT_FALSE(is_acknowledged);
  cluster_->Restart(ReplicaIndex());
  AwaitFor([&] { return is_acknowledged && lag.value() == 0.0; }, absl::Seconds(30),
           "the replica is up to date");
}

TEST_F(ReplicationTest, ARestartedReplicaIsBroughtUpToDateByItself) {
  Start(3);
  for (std::uint64_t seq = 1; seq <= 5; ++seq) UpdateOnce(seq);
  cluster_->Restart(ReplicaIndex());
  const NodeId replica = cluster_->specs()[ReplicaIndex()].id;
  AwaitFor([&] { return IsCurrent(replica); }, absl::Seconds(30), "the replica is up to date");
  EXPECT_GT(cluster_->transport().messages(Kind::kRows), 1u);
  UpdateOnce(6);
  ExpectAllCurrent();
}

TEST_F(ReplicationTest, AReplicaFarBehindGetsASnapshot) {
  Start(2);
  UpdateOnce(1);
  cluster_->TakeDown(ReplicaIndex());
  std::atomic<int> acknowledged = 0;
  for (std::uint64_t seq = 2; seq <= 30; ++seq) {  // The backlog keeps 8.
    UpdateBatch request = Pack(Header(seq), {RandomPart()});
    request.first_incomplete = UpdateSeq{2};
    model_->Step(seq);
    cluster_->node(primary_).Update(std::move(request), absl::InfiniteFuture(),
                                    [&](const absl::StatusOr<UpdateResult>& result) {
                                      EXPECT_THAT(result, IsOk());
                                      ++acknowledged;
                                    });
  }
  AwaitFor([&] { return IsCurrent(primary_); }, absl::Seconds(30), "all is applied here");
  EXPECT_EQ(acknowledged, 0);
  cluster_->Restart(ReplicaIndex());
  AwaitFor([&] { return acknowledged == 29; }, absl::Seconds(30), "the replica has caught up");
  AwaitServing(cluster_->specs()[ReplicaIndex()].id);
  ExpectAllCurrent();
  EXPECT_GT(cluster_->transport().messages(Kind::kRows), 1u);
}

// Windows are read between the updates, and sent between them. Twelve updates are under way at any
// time, nobody but the new copy waits for messages, which take 2 ms, and the backlog is one of
// eight: without waiting they would leave the copy behind.
TEST_F(ReplicationTest, ANewCopyEndsUnderTrainersThatNeverRest) {
  const std::uint32_t seed = TestSeed();
  SCOPED_TRACE(::testing::Message() << "EMBLA_TEST_SEED=" << seed);
  Start(2, seed);
  for (std::uint64_t seq = 1; seq <= 5; ++seq) UpdateOnce(seq);
  const NodeId replica = cluster_->specs()[ReplicaIndex()].id;
  const std::vector<Slice> copy = TakeCopyAway(replica);
  cluster_->transport().SetFaults({.overtaken = 1000});
  std::vector<std::unique_ptr<BusyTrainer>> trainers;
  for (std::uint64_t t = 0; t < 12; ++t) {
    trainers.push_back(std::make_unique<BusyTrainer>(*this, SessionId{100 + t}, t, 12));
  }
  const auto train = [&] {
    for (const auto& trainer : trainers) trainer->Look();
  };
  for (int i = 0; i < 300; ++i) train();
  TablePlan table = cluster_->plan()->tables()[0];
  table.replicas.push_back(copy);
  ASSERT_THAT(cluster_->Install({table}), IsOk());
  const absl::Time end = absl::Now() + absl::Seconds(30);
  while (!cluster_->node(replica).ViewCopy(spec_.id).serves && absl::Now() < end) train();
  EXPECT_TRUE(cluster_->node(replica).ViewCopy(spec_.id).serves) << "the copy never ends";
  for (const auto& trainer : trainers) trainer->End();
  ExpectAllCurrent();
  EXPECT_EQ(cluster_->transport().messages(Kind::kRows), 15u) << "it began again";
  UpdateOnce(6);
  ExpectAllCurrent();
}

TEST_F(ReplicationTest, ACopyIsMadeOverLossesWhileUpdatesGoOn) {
  const std::uint32_t seed = TestSeed();
  SCOPED_TRACE(::testing::Message() << "EMBLA_TEST_SEED=" << seed);
  Start(2, seed);
  for (std::uint64_t seq = 1; seq <= 5; ++seq) UpdateOnce(seq);
  const NodeId replica = cluster_->specs()[ReplicaIndex()].id;
  cluster_->transport().SetFaults({.lost_request = 10, .lost_answer = 10, .repeated_later = 100});
  cluster_->Restart(ReplicaIndex());
  for (std::uint64_t seq = 6; seq <= 60; seq += 3) UpdateAtOnce(seq, seq + 3);
  AwaitFor([&] { return IsCurrent(replica); }, absl::Seconds(30), "the replica is up to date");
  ExpectAllCurrent();
}

// Rows at another place than that they were read at would undo updates, or lack some.
TEST_F(ReplicationTest, RowsOfACopyAreTakenAtTheirPlaceOnly) {
  Start(2);
  cluster_->transport().SetFaults({.lost_request = 1000});
  cluster_->Restart(ReplicaIndex());
  ShardNode& replica = cluster_->node(ReplicaIndex());
  std::uint64_t life = 0;
  const auto apply = [&](Kind kind, std::uint64_t order, bool first, bool last) {
    ReplicaMessage message;
    message.content = CopyProbe{spec_.id, 77, order};
    if (kind == Kind::kUpdate) {
      message.content = CopiedUpdate{spec_.id, 77, order, Pack(Header(order), {RandomPart()})};
    }
    if (kind == Kind::kRows) {
      RowBlockBuilder rows({spec_.id, 0, spec_.dim, spec_.dtype, 1 + 2 * spec_.dim}, 1);
      rows.rows()[0] = RowId{1};
      message.content = CopiedRows{spec_.id, 77, order, rows.Finish(), first, last};
    }
    message.term = message.plan_version = cluster_->plan()->version();
    message.life = life;
    absl::StatusOr<ReplicaAck> ack = Await<ReplicaAck>([&](ReplicaDone done) {
      replica.ApplyReplicated(std::move(message), absl::InfiniteFuture(), std::move(done));
    });
    if (ack.ok()) life = ack->life;
    return ack;
  };
  ASSERT_THAT(apply(Kind::kProbe, 4, false, false), IsOk());
  ASSERT_THAT(apply(Kind::kRows, 4, true, false), IsOk());
  EXPECT_TRUE(apply(Kind::kRows, 5, false, false)->need_snapshot) << "it lacks update 5";
  ASSERT_THAT(apply(Kind::kUpdate, 5, false, false), IsOk());
  EXPECT_TRUE(apply(Kind::kRows, 4, false, false)->need_snapshot) << "it has no update 5";
  EXPECT_FALSE(apply(Kind::kRows, 5, false, false)->need_snapshot);
  const absl::StatusOr<ReplicaAck> half = apply(Kind::kProbe, 5, false, false);
  EXPECT_TRUE(half->need_snapshot) << "it has not come in yet";
  EXPECT_EQ(half->order, 5u) << "where its primary may go on";
  const std::uint64_t now = std::exchange(life, life + 1);
  EXPECT_TRUE(apply(Kind::kRows, 5, false, true)->need_snapshot) << "from before a restart";
  life = now;
  EXPECT_FALSE(apply(Kind::kRows, 5, false, true)->need_snapshot);
  EXPECT_EQ(apply(Kind::kProbe, 5, false, false)->order, 5u);
  EXPECT_TRUE(apply(Kind::kRows, 5, false, true)->need_snapshot) << "it is over";
}

TEST_F(ReplicationTest, AfterAPrimaryRestartTheCopiesFollowItsNewLife) {
  Start(3);
  for (std::uint64_t seq = 1; seq <= 5; ++seq) UpdateOnce(seq);
  cluster_->Restart(ToInt(primary_) - 1);  // It has no log: the table begins again.
  model_ = std::make_unique<TableModel>(spec_);
  for (const NodeSpec& node : cluster_->specs()) {
    AwaitFor([&] { return IsCurrent(node.id); }, absl::Seconds(30), "every copy is up to date");
  }
  UpdateOnce(6);
  ExpectAllCurrent();
}

TEST_F(ReplicationTest, HyperParametersChangeAtTheSameUpdateOnEveryCopy) {
  Start(3);
  cluster_->transport().SetFaults({.lost_request = 200});
  for (std::uint64_t seq = 1; seq <= 20; ++seq) {
    UpdateOnce(seq);
    spec_.optimizer.learning_rate = 0.001f * static_cast<float>(seq);
    spec_.rounding = seq % 2 == 0 ? Rounding::kStochastic : Rounding::kNearest;
    Install();
    model_->SetOptimizer(spec_.optimizer, spec_.rounding);
  }
  ExpectAllCurrent();
}

TEST_F(ReplicationTest, ARejectedUpdateIsOnNoCopy) {
  Start(2);
  UpdateOnce(1);
  UpdatePartData bad = RandomPart();
  model_->Step(0);
  model_ = std::make_unique<TableModel>(spec_);
  bad.ids[0] = RowId{spec_.rows};
  EXPECT_EQ(Send(2, bad).status().code(), Code::kOutOfRange);
  const auto before = cluster_->transport().messages(Kind::kUpdate);
  EXPECT_EQ(Send(2, bad).status().code(), Code::kOutOfRange);
  EXPECT_EQ(cluster_->transport().messages(Kind::kUpdate), before);
}

TEST(CopyStateLead, ByAnOlderPlanThanThatOfAPrimaryThatItHasHeardOfEndsWithThatPlan) {
  CopyState copy(/*is_primary=*/false);
  copy.TakeRole(/*is_primary=*/true, PlanVersion{27});
  ASSERT_THAT(copy.Follow(PlanVersion{26}), IsOk()) << "the old primary brings it up to date";
  ASSERT_THAT(copy.Follow(PlanVersion{28}), IsOk()) << "a plan that has not come yet";
  ASSERT_TRUE(copy.Confirm(copy.life()));
  EXPECT_TRUE(copy.Lead());
  copy.TakeRole(/*is_primary=*/false, PlanVersion{28});
  EXPECT_THAT(copy.Follow(PlanVersion{28}), IsOk()) << "it would wait for itself";
}

TEST_F(ReplicationTest, MessagesThatDoNotFitAreRefused) {
  Start(2);
  ShardNode& replica = cluster_->node(ReplicaIndex());
  const auto apply = [](ShardNode& node, ReplicaMessage message) {
    return Await<ReplicaAck>([&](ReplicaDone done) {
      node.ApplyReplicated(std::move(message), absl::InfiniteFuture(), std::move(done));
    });
  };
  const auto message = [&](auto content) {
    ReplicaMessage message;
    message.content = std::move(content);
    message.term = cluster_->plan()->version();
    return message;
  };
  const auto probe = [&](TableId table) { return message(CopyProbe{table, 77, 1}); };
  const auto rows = [&](Buffer block) {
    return message(CopiedRows{spec_.id, 77, 1, std::move(block), /*first=*/true});
  };
  EXPECT_EQ(apply(cluster_->node(primary_), probe(spec_.id)).status().code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(apply(replica, message(CopiedUpdate{spec_.id, 77, 1, {}})).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(apply(replica, rows(Buffer())).status().code(), Code::kInvalidArgument);
  RowBlockBuilder builder({spec_.id, 0, spec_.dim, spec_.dtype, 1 + 2 * spec_.dim}, 1);
  builder.rows()[0] = RowId{1};
  Buffer damaged = builder.Finish();
  damaged.bytes().back() ^= std::byte{1};
  EXPECT_EQ(apply(replica, rows(std::move(damaged))).status().code(), Code::kDataLoss);
  const auto other = [&](std::uint64_t life) {
    RowBlockBuilder block({TableId{2}, 0, spec_.dim, spec_.dtype, 0}, 1);
    block.rows()[0] = RowId{1};
    ReplicaMessage piece = rows(block.Finish());
    piece.life = life;
    return piece;
  };
  const absl::StatusOr<ReplicaAck> late = apply(replica, other(0));
  ASSERT_THAT(late, IsOk());
  EXPECT_TRUE(late->need_snapshot) << "it is meant for another life of the copy";
  EXPECT_EQ(apply(replica, other(late->life)).status().code(), Code::kInvalidArgument);
  ReplicaMessage nobody = probe(spec_.id);
  nobody.term = PlanVersion{};
  EXPECT_EQ(apply(replica, std::move(nobody)).status().code(), Code::kInvalidArgument);
  ReplicaMessage newer = probe(TableId{9});
  newer.plan_version = PlanVersion{99};
  EXPECT_EQ(apply(replica, std::move(newer)).status().code(), Code::kUnavailable);
  const absl::StatusOr<ReplicaAck> ack = apply(replica, probe(TableId{9}));
  ASSERT_THAT(ack, IsOk());
  EXPECT_TRUE(ack->gone);
}

TEST_F(ReplicationTest, ARestartedReplicaAnswersNoLookupsBeforeItsCopyIsThere) {
  Start(2);
  for (std::uint64_t seq = 1; seq <= 5; ++seq) UpdateOnce(seq);
  cluster_->transport().SetFaults({.lost_request = 1000});
  cluster_->Restart(ReplicaIndex());
  const NodeId replica = cluster_->specs()[ReplicaIndex()].id;
  LookupBatch header;
  header.plan_version = cluster_->plan()->version();
  header.wire_dtype = DType::kFloat32;
  LookupPartData part;
  part.part.table = spec_.id;
  part.part.column_end = spec_.dim;
  part.ids = {RowId{1}};
  EXPECT_EQ(cluster_->Lookup(replica, Pack(header, {part})).status().code(), Code::kUnavailable);
  cluster_->transport().SetFaults({});
  cluster_->AwaitCopies(spec_.id);
  EXPECT_THAT(cluster_->Lookup(replica, Pack(header, {part})), IsOk());
  EXPECT_TRUE(IsCurrent(replica));
}

TEST_F(ReplicationTest, ACopyThatIsAddedServesOnceItHasEverything) {
  Start(3);
  TablePlan table = cluster_->plan()->tables()[0];
  const std::vector<Slice> last = table.replicas.back();
  table.replicas.pop_back();
  ASSERT_THAT(cluster_->Install({table}), IsOk());
  const NodeId node = last.front().device.node;
  EXPECT_FALSE(cluster_->node(node).ViewCopy(spec_.id).is_here);
  for (std::uint64_t seq = 1; seq <= 5; ++seq) UpdateOnce(seq);
  table.replicas.push_back(last);
  ASSERT_THAT(cluster_->Install({table}), IsOk());
  for (std::uint64_t seq = 6; seq <= 30; ++seq) UpdateOnce(seq);
  cluster_->AwaitCopies(spec_.id);
  EXPECT_TRUE(IsCurrent(node));
  UpdateOnce(31);
  ExpectAllCurrent();
}

TEST_F(ReplicationTest, UpdatesWaitForACopyUntilItHasHeardThatItIsRemoved) {
  Start(2);
  UpdateOnce(1);
  const NodeId replica = cluster_->specs()[ReplicaIndex()].id;
  TablePlan table = cluster_->plan()->tables()[0];
  table.replicas.pop_back();
  const auto next =
      std::make_shared<const Plan>(PlanVersion{ToInt(cluster_->plan()->version()) + 1}, "test",
                                   cluster_->specs(), std::vector{table});
  ASSERT_THAT(cluster_->node(primary_).InstallPlan(next, primary_), IsOk());
  UpdateOnce(2);
  EXPECT_TRUE(IsCurrent(replica));  // It serves lookups, so it has the update.
  ASSERT_THAT(cluster_->node(replica).InstallPlan(next, replica), IsOk());
  EXPECT_FALSE(cluster_->node(replica).ViewCopy(spec_.id).is_here);
  cluster_->AwaitUsedBytes(replica, table.primary()[0].device.index, 0);
  UpdateOnce(3);
  EXPECT_TRUE(IsCurrent(primary_));
}

TEST_F(ReplicationTest, AnotherCopyBecomesThePrimaryAndKnowsWhatWasApplied) {
  Start(3);
  for (std::uint64_t seq = 1; seq <= 5; ++seq) UpdateOnce(seq);
  const UpdatePartData part = RandomPart();
  ASSERT_THAT(Send(6, part), IsOk());
  model_->Step(6);
  TablePlan table = cluster_->plan()->tables()[0];
  std::rotate(table.replicas.begin(), table.replicas.begin() + 1, table.replicas.end());
  ASSERT_THAT(cluster_->Install({table}), IsOk());
  const NodeId before = std::exchange(primary_, table.primary()[0].device.node);
  AwaitFor([&] { return cluster_->node(primary_).ViewCopy(spec_.id).leads; }, absl::Seconds(30),
           "the new primary leads");
  const absl::StatusOr<UpdateResult> again = Send(6, part);
  ASSERT_THAT(again, IsOk());
  EXPECT_TRUE(again->duplicate);
  EXPECT_EQ(cluster_->Update(before, Pack(Header(7), {part})).status().code(),
            Code::kFailedPrecondition);
  for (std::uint64_t seq = 7; seq <= 10; ++seq) UpdateOnce(seq);
  cluster_->AwaitCopies(spec_.id);
  ExpectAllCurrent();
}

}  // namespace
}  // namespace embla::testing
