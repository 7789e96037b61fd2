#include "server/rpc/coordinator_host.h"
#include "core/base/clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "server/state_store/memory_state_store.h"

namespace embla::coordinator_host_test {
namespace {

using embla::testing::AwaitFor;
using embla::testing::IsOk;
using embla::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kLimit = absl::Seconds(30);

NodeRegistration RegistrationOf(const std::string& name, std::uint64_t boot_id) {
  NodeRegistration registration;
  registration.name = name;
  registration.address = absl::StrCat("127.0.0.1:", boot_id);
  registration.devices = {{.kind = DeviceKind::kCpu, .memory_bytes = 1 << 20}};
  registration.boot_id = boot_id;
  return registration;
}

// Moves only when told, by any thread.
class SharedClock final : public Clock {
 public:
  absl::Time Now() const override {
    return absl::FromUnixMillis(1'000'000) + absl::Milliseconds(ms_.load());
  }
  void Advance(absl::Duration step) { ms_ += absl::ToInt64Milliseconds(step); }

 private:
  std::atomic<std::int64_t> ms_ = 0;
};

// A store on a disk whose sync takes `sync_time`, or fails.
class SlowStore final : public StateStore {
 public:
  explicit SlowStore(absl::Duration sync_time = absl::ZeroDuration()) : sync_time_(sync_time) {}

  absl::StatusOr<StateEntry> Get(std::string_view key) const override { return inner_.Get(key); }
  absl::StatusOr<std::vector<StateEntry>> List(std::string_view prefix) const override {
    return inner_.List(prefix);
  }
  absl::StatusOr<Revision> Commit(std::span<const StateCompare> compares,
                                  std::span<const StateWrite> writes) override {
    absl::StatusOr<Revision> revision = inner_.Commit(compares, writes);
    if (!revision.ok()) return revision;
    is_synced_ = false;
    const absl::Status synced = is_batch_ ? absl::OkStatus() : Sync();
    if (!synced.ok()) return synced;
    return revision;
  }
  void BeginBatch() override { is_batch_ = true; }
  absl::Status EndBatch() override {
    is_batch_ = false;
    return is_synced_ ? absl::OkStatus() : Sync();
  }
  std::unique_ptr<StateWatch> Watch(std::string_view prefix) override {
    return inner_.Watch(prefix);
  }
  Revision revision() const override { return inner_.revision(); }

  int syncs() const { return syncs_; }
  void FailSyncs() { fails_ = true; }

 private:
  absl::Status Sync() {
    ++syncs_;
    if (fails_) return absl::UnavailableError("the disk is gone");
    absl::SleepFor(sync_time_);  // The disk's own time.
    is_synced_ = true;
    return absl::OkStatus();
  }

  const absl::Duration sync_time_;
  MemoryStateStore inner_;
  std::atomic<int> syncs_ = 0;
  std::atomic<bool> fails_ = false;
  bool is_batch_ = false;
  bool is_synced_ = true;
};

class CoordinatorHostTest : public ::testing::Test {
 protected:
  void Start(SlowStore& store, const Clock& clock, CoordinatorHostOptions options = {},
             Metrics* metrics = nullptr) {
    auto coordinator = Coordinator::Open(store, {.new_cluster_id = "c"}, clock.Now());
    ASSERT_THAT(coordinator, IsOk());
    host_ = std::make_unique<CoordinatorHost>(*std::move(coordinator), options, clock, metrics);
  }

  // Runs `task` and waits for its answer.
  absl::Status Do(CoordinatorHost::Task task) {
    std::atomic<bool> answered = false;
    absl::Status status;
    host_->Post(std::move(task), [&](const absl::Status& result) {
      status = result;
      answered = true;
    });
    AwaitFor([&] { return answered.load(); }, kLimit, "the task is answered");
    return status;
  }

  NodeProcess Register(const std::string& name) {
    NodeProcess process{.node = {}, .boot_id = 7};
    EXPECT_THAT(Do([&](Coordinator& coordinator, absl::Time now) {
                  const auto id =
                      coordinator.RegisterNode(RegistrationOf(name, process.boot_id), now);
                  EXPECT_THAT(id, IsOk());
                  if (id.ok()) process.node = *id;
                }),
                IsOk());
    return process;
  }

  // Empty when the host takes no more requests.
  std::vector<NodeState> States() {
    std::vector<NodeState> states;
    (void)Do([&](Coordinator& coordinator, absl::Time) {
      for (const NodeView& node : coordinator.Nodes()) states.push_back(node.state);
    });
    return states;
  }

  ClusterView View() {
    ClusterView view;
    EXPECT_THAT(Do([&](Coordinator& coordinator, absl::Time) { view = coordinator.Status(); }),
                IsOk());
    return view;
  }

  // A task that keeps the host's thread busy until Release.
  void Block() {
    std::atomic<bool> runs = false;
    host_->Post(
        [&runs, this](Coordinator&, absl::Time) {
          runs = true;
          AwaitFor([this] { return released_.load(); }, kLimit, "the test releases the thread");
        },
        [](const absl::Status&) {});
    AwaitFor([&] { return runs.load(); }, kLimit, "the thread is busy");
  }
  void Release() { released_ = true; }

  std::atomic<bool> released_ = false;
  SlowStore store_;
  SharedClock clock_;
  std::unique_ptr<CoordinatorHost> host_;
};

using CoordinatorHostHeartbeats = CoordinatorHostTest;

TEST_F(CoordinatorHostHeartbeats, KeepNodesAliveWhileTheThreadIsBusyAndTheQueueIsFull) {
  Start(store_, clock_, {.tasks_queued_max = 1});
  const NodeProcess node = Register("n1");
  Block();
  host_->Post([](Coordinator&, absl::Time) {}, [](const absl::Status&) {});
  absl::Status refused;
  host_->Post([](Coordinator&, absl::Time) {}, [&](const absl::Status& s) { refused = s; });
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted));
  for (int i = 0; i < 60; ++i) {
    clock_.Advance(absl::Seconds(1));
    host_->PostHeartbeat(node, {});
  }
  Release();
  // The next tick comes at once, as far as this clock goes.
  EXPECT_TRUE(AwaitFor([&] { return States() == std::vector{NodeState::kLive}; }, kLimit, "live"));
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(AwaitFor([&] { return States() == std::vector{NodeState::kLive}; }, kLimit, "still"));
}

TEST_F(CoordinatorHostHeartbeats, CountFromTheirArrival) {
  Start(store_, clock_);
  const NodeProcess node = Register("n1");
  Block();
  host_->PostHeartbeat(node, {});
  clock_.Advance(absl::Seconds(60));
  Release();
  // One that came a minute ago is no sign of life now.
  EXPECT_TRUE(AwaitFor(
      [&] {
        clock_.Advance(absl::Milliseconds(200));
        return States() == std::vector{NodeState::kDead};
      },
      kLimit, "dead"));
  // The failure counts once, also when the node is back.
  host_->PostHeartbeat(node, {});
  EXPECT_TRUE(AwaitFor([&] { return States() == std::vector{NodeState::kLive}; }, kLimit, "back"));
  EXPECT_EQ(View().nodes_died, 1u);
}

TEST_F(CoordinatorHostHeartbeats, OfAnotherProcessAreRefusedAtItsLink) {
  class Listener final : public PlanListener {
   public:
    void OnPlan(const PlanPtr&) override {}
    void OnStop() override {}
    void OnRefusedHeartbeat(const NodeProcess& process, const absl::Status& status) override {
      EXPECT_EQ(process.boot_id, 8u);
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound));
      refused = true;
    }
    std::atomic<bool> refused = false;
  };
  Start(store_, clock_);
  Listener listener;
  host_->AddListener(&listener);
  const NodeProcess node = Register("n1");
  host_->PostHeartbeat({node.node, 8}, {});
  EXPECT_TRUE(AwaitFor([&] { return listener.refused.load(); }, kLimit, "refused"));
  host_->RemoveListener(&listener);
}

using CoordinatorHostMetrics = CoordinatorHostTest;

TEST_F(CoordinatorHostMetrics, NameTheNodeThatTheRunningJobAwaits) {
  Metrics metrics;
  Start(store_, clock_, {}, &metrics);
  const NodeProcess here = Register("here");
  const NodeProcess away = Register("away");
  const auto beat = [this](const NodeProcess& node) {
    HeartbeatInfo info;
    info.plan_version = host_->plan()->version();
    host_->PostHeartbeat(node, info);
  };
  ASSERT_THAT(Do([](Coordinator& coordinator, absl::Time now) {
                EXPECT_THAT(coordinator.StartCreateTable({.name = "t", .rows = 1000, .dim = 16},
                                                         {.sharding = ShardingType::kRowWise},
                                                         absl::Seconds(60), now),
                            IsOk());
              }),
              IsOk());
  ASSERT_TRUE(AwaitFor(
      [&] {
        beat(here);
        beat(away);
        absl::Status started;
        (void)Do([&](Coordinator& coordinator, absl::Time now) {
          started = coordinator.StartJob({.goal = DrainGoal{"here"}}, now).status();
        });
        return started.ok();
      },
      kLimit, "the table is there, and its rows begin to move"));
  EXPECT_THAT(metrics.Text(), HasSubstr("embla_job_awaits_node{node=\"away\"} 0"));
  EXPECT_TRUE(AwaitFor(
      [&] {
        clock_.Advance(absl::Seconds(1));
        beat(here);
        return absl::StrContains(metrics.Text(), "embla_job_awaits_node{node=\"away\"} 1");
      },
      kLimit, "the metric says that the node which is down is awaited"));
  EXPECT_THAT(metrics.Text(), HasSubstr("embla_job_awaits_node{node=\"here\"} 0"));
  host_.reset();  // It takes its nodes' series away.
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("node=\"here\"")));
}

using CoordinatorHostPost = CoordinatorHostTest;

TEST_F(CoordinatorHostPost, OfNodesIsNeverRefusedAndTakesTurns) {
  Start(store_, clock_, {.tasks_queued_max = 3});
  std::vector<std::string> order;
  std::atomic<std::size_t> answered = 0;
  const auto note = [&order](const std::string& what) {
    return [&order, what](Coordinator&, absl::Time) { order.push_back(what); };
  };
  const auto answer = [&answered](const absl::Status& status) {
    EXPECT_THAT(status, IsOk());
    ++answered;
  };
  Block();
  for (int i = 0; i < 3; ++i) host_->Post(note("client"), answer);
  for (int i = 0; i < 5; ++i) host_->PostOfNode(note("node"), answer);
  Release();
  ASSERT_TRUE(AwaitFor([&] { return answered == 8; }, kLimit, "all are answered"));
  EXPECT_THAT(order,
              ElementsAre("node", "client", "node", "client", "node", "client", "node", "node"));
}

TEST_F(CoordinatorHostPost, StopAnswersWhatWaitsWithoutRunningIt) {
  Start(store_, clock_);
  Block();
  std::vector<absl::Status> answers;
  for (int i = 0; i < 3; ++i) {
    host_->Post([](Coordinator&, absl::Time) { FAIL() << "was run"; },
                [&](const absl::Status& status) { answers.push_back(status); });
  }
  std::thread stopping([this] { host_->Stop(); });
  EXPECT_TRUE(AwaitFor(
      [&] {
        absl::Status status;
        host_->PostOfNode([](Coordinator&, absl::Time) {},
                          [&](const absl::Status& answer) { status = answer; });
        return absl::IsUnavailable(status);
      },
      kLimit, "the host takes nothing any more"));
  Release();
  stopping.join();
  const auto is_stopping = StatusIs(absl::StatusCode::kUnavailable, HasSubstr("is stopping"));
  EXPECT_THAT(answers, ElementsAre(is_stopping, is_stopping, is_stopping));
}

TEST_F(CoordinatorHostPost, AnAnswerComesAfterThePlanThatItSpeaksOf) {
  Start(store_, clock_);
  PlanVersion made{};
  PlanVersion seen{};
  std::atomic<bool> answered = false;
  host_->Post(
      [&](Coordinator& coordinator, absl::Time now) {
        EXPECT_THAT(coordinator.RegisterNode(RegistrationOf("n1", 7), now), IsOk());
        made = coordinator.GetPlan()->version();
      },
      [&](const absl::Status&) {
        seen = host_->plan()->version();
        answered = true;
      });
  AwaitFor([&] { return answered.load(); }, kLimit, "the task is answered");
  EXPECT_EQ(seen, made);
}

TEST_F(CoordinatorHostPost, NobodyIsToldOfWhatIsNotDurable) {
  Start(store_, clock_);
  const PlanVersion before = host_->plan()->version();
  bool is_told = false;
  host_->OnRefusal([&] { is_told = true; });
  store_.FailSyncs();
  const absl::Status status = Do([](Coordinator& coordinator, absl::Time now) {
    EXPECT_THAT(coordinator.RegisterNode(RegistrationOf("n1", 7), now), IsOk());
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("the disk is gone")));
  EXPECT_EQ(host_->plan()->version(), before);
  EXPECT_THAT(Do([](Coordinator&, absl::Time) { FAIL() << "was run"; }),
              StatusIs(absl::StatusCode::kUnavailable));
  host_->Stop();
  EXPECT_TRUE(is_told);
  bool is_told_later = false;
  host_->OnRefusal([&] { is_told_later = true; });
  EXPECT_TRUE(is_told_later);
}

TEST(CoordinatorHostSessions, OfSixThousandTrainersCostFewSyncsOfASlowDiskAndNoNode) {
  constexpr int kTrainers = 6000;
  constexpr int kNodes = 3;
  SlowStore store(absl::Milliseconds(8));
  const Clock& clock = Clock::Real();
  auto coordinator = Coordinator::Open(store, {.new_cluster_id = "c"}, clock.Now());
  ASSERT_THAT(coordinator, IsOk());
  CoordinatorHost host(*std::move(coordinator), {}, clock, nullptr);
  std::atomic<int> registered = 0;
  std::vector<NodeProcess> nodes;
  for (std::uint64_t i = 1; i <= kNodes; ++i) {
    host.PostOfNode(
        [&, i](Coordinator& the_coordinator, absl::Time now) {
          const auto id =
              the_coordinator.RegisterNode(RegistrationOf(absl::StrCat("n", i), i), now);
          ASSERT_THAT(id, IsOk());
          nodes.push_back({*id, i});
        },
        [&](const absl::Status& status) {
          EXPECT_THAT(status, IsOk());
          ++registered;
        });
  }
  ASSERT_TRUE(AwaitFor([&] { return registered == kNodes; }, kLimit, "the nodes are registered"));
  const int syncs_before = store.syncs();
  const absl::Time began = absl::Now();
  std::atomic<int> opened = 0;
  for (int i = 0; i < kTrainers; ++i) {
    host.Post(
        [i](Coordinator& the_coordinator, absl::Time) {
          EXPECT_THAT(the_coordinator.OpenSession(
                          {.trainer = absl::StrCat("trainer", i), .client_nonce = 1}),
                      IsOk());
        },
        [&](const absl::Status& status) {
          EXPECT_THAT(status, IsOk());
          ++opened;
        });
  }
  ASSERT_TRUE(AwaitFor(
      [&] {
        for (const NodeProcess& node : nodes) host.PostHeartbeat(node, {});
        return opened == kTrainers;
      },
      kLimit, "everybody has a session"));
  const absl::Duration took = absl::Now() - began;
  RecordProperty("seconds", absl::StrCat(absl::ToDoubleSeconds(took)));
  // One sync for each would be 48 s.
  EXPECT_LT(store.syncs() - syncs_before, 200);
  EXPECT_LT(took, absl::Seconds(24));
  std::atomic<bool> is_told = false;
  ClusterView view;
  host.Post([&](Coordinator& the_coordinator, absl::Time) { view = the_coordinator.Status(); },
            [&](const absl::Status&) { is_told = true; });
  ASSERT_TRUE(AwaitFor([&] { return is_told.load(); }, kLimit, "the view"));
  EXPECT_EQ(view.nodes_live, kNodes);
  EXPECT_EQ(view.nodes_died, 0u);
}

}  // namespace
}  // namespace embla::coordinator_host_test
