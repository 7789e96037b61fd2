// Planning and plans of old: work of the admin service that takes long, and changes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/build_version.h"
#include "core/base/mutex.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "server/rpc/coordinator_fixture.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(60);
// Limits in admin_service.h.
constexpr int kThreads = 2;
constexpr int kQueuedMax = 32;

// A store whose history of plans cannot be read while it is held.
class HeldStore final : public StateStore {
 public:
  void Hold() {
    const MutexLock lock(mu_);
    is_held_ = true;
  }
  void Release() {
    const MutexLock lock(mu_);
    is_held_ = false;
    changed_.NotifyAll();
  }
  // How often the history was asked for since the first Hold.
  int readers() const {
    const MutexLock lock(mu_);
    return readers_;
  }

  absl::StatusOr<std::vector<StateEntry>> List(std::string_view prefix) const override {
    if (prefix.starts_with("plan/history/")) {
      const MutexLock lock(mu_);
      if (is_held_ || readers_ > 0) ++readers_;
      while (is_held_) changed_.Wait(mu_);
    }
    return inner_.List(prefix);
  }
  absl::StatusOr<StateEntry> Get(std::string_view key) const override { return inner_.Get(key); }
  absl::StatusOr<Revision> Commit(std::span<const StateCompare> compares,
                                  std::span<const StateWrite> writes) override {
    return inner_.Commit(compares, writes);
  }
  std::unique_ptr<StateWatch> Watch(std::string_view prefix) override {
    return inner_.Watch(prefix);
  }
  Revision revision() const override { return inner_.revision(); }

 private:
  MemoryStateStore inner_;
  mutable Mutex mu_;
  mutable CondVar changed_;
  bool is_held_ ABSL_GUARDED_BY(mu_) = false;
  mutable int readers_ ABSL_GUARDED_BY(mu_) = 0;
};

// A call that is answered later.
template <typename Reply>
struct Pending {
  grpc::ClientContext context;
  Reply reply;
  grpc::Status status;
  std::atomic<bool> is_answered = false;

  std::function<void(grpc::Status)> OnDone() {
    return [this](const grpc::Status& done) {
      status = done;
      is_answered = true;
    };
  }
  bool Await() const {
    return AwaitFor([this] { return is_answered.load(); }, kLimit, "the call is answered");
  }
};
using PendingHistory = Pending<v1::PlanHistory>;
using PendingPlan = Pending<v1::TableReply>;

class AdminReads : public CoordinatorFixture {
 protected:
  StateStore& store() override { return held_; }
  void TearDown() override {
    held_.Release();
    CoordinatorFixture::TearDown();
  }

  void AskHistory(PendingHistory& call) {
    admin_->async()->GetPlanHistory(&call.context, &history_request_, &call.reply, call.OnDone());
  }
  // All threads of reads are busy from now on.
  void HoldThreads() {
    held_.Hold();
    for (int i = 0; i < kThreads; ++i) AskHistory(hanging_.emplace_back());
    ASSERT_TRUE(AwaitFor([&] { return held_.readers() == kThreads; }, kLimit, "reads hang"));
  }
  void ExpectHangingAnswered() {
    for (const PendingHistory& call : hanging_) {
      ASSERT_TRUE(call.Await());
      EXPECT_THAT(call.status, IsOk());
      EXPECT_GT(call.reply.changes_size(), 0);
    }
  }
  // The coordinator's thread does this.
  void ExpectSessionsOpen() {
    grpc::ClientContext context;
    v1::OpenSessionReply session;
    const grpc::Status status = stub_->OpenSession(&context, {}, &session);
    EXPECT_THAT(status, IsOk());
  }

  HeldStore held_;
  const v1::GetPlanHistoryRequest history_request_;
  std::deque<PendingHistory> hanging_;
};

// A shard server that says that it is there.
class BeatingNode {
 public:
  BeatingNode(v1::CoordinatorService::Stub& stub, const ClusterKey& key)
      : stream_(stub.NodeLink(&context_)) {
    v1::Registration registration;
    registration.set_name("n0");
    registration.set_address("127.0.0.1:9");
    registration.set_boot_id(1);
    registration.set_protocol_version(kProtocolVersion);
    v1::Device& device = *registration.add_devices();
    device.set_kind(v1::Device::KIND_CPU);
    device.set_memory_bytes(1 << 20);
    IntroduceNode(*stream_, std::move(registration), key);
    v1::NodeCommand welcome;
    EXPECT_TRUE(stream_->Read(&welcome) && welcome.has_registered());
  }
  ~BeatingNode() {
    context_.TryCancel();
    stream_->Finish();
  }
  void Beat() {
    v1::NodeReport report;
    report.mutable_heartbeat()->set_plan_version(1);
    EXPECT_TRUE(stream_->Write(report));
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::NodeReport, v1::NodeCommand>> stream_;
};

TEST_F(AdminReads, HistoryAndOlderPlansAreAnswered) {
  Start();
  const BeatingNode node(*stub_, *key_);
  PendingHistory history;
  AskHistory(history);
  ASSERT_TRUE(history.Await());
  ASSERT_EQ(history.reply.changes_size(), 1);
  EXPECT_EQ(history.reply.changes(0).cause(), "node n0 joined");

  const std::uint64_t newest = history.reply.changes(0).version();
  v1::GetPlanAtRequest request;
  for (const std::uint64_t version : {newest - 1, newest}) {
    request.set_version(version);
    grpc::ClientContext context;
    v1::Plan plan;
    const grpc::Status status = admin_->GetPlanAt(&context, request, &plan);
    ASSERT_THAT(status, IsOk());
    EXPECT_EQ(plan.version(), version);
    EXPECT_EQ(plan.json().find("n0") != std::string::npos, version == newest) << plan.json();
  }
  request.set_version(newest + 1);
  grpc::ClientContext context;
  v1::Plan plan;
  EXPECT_EQ(admin_->GetPlanAt(&context, request, &plan).error_code(), grpc::NOT_FOUND);
}

TEST_F(AdminReads, ThatHangKeepNeitherHeartbeatsNorSessionsNorPlansWaiting) {
  Start();
  BeatingNode node(*stub_, *key_);
  HoldThreads();
  node.Beat();
  EXPECT_TRUE(AwaitFor(
      [&] {
        return metrics_.Text().find("embla_heartbeats_total{node=\"n0\"} 1") != std::string::npos;
      },
      kLimit, "the heartbeat is heard"));
  ExpectSessionsOpen();
  grpc::ClientContext listing, planning;
  v1::ListNodesReply nodes;
  ASSERT_THAT(admin_->ListNodes(&listing, {}, &nodes), IsOk());
  EXPECT_TRUE(nodes.nodes(0).live());
  v1::Plan plan;
  EXPECT_THAT(admin_->GetPlan(&planning, {}, &plan), IsOk());
  EXPECT_FALSE(hanging_[0].is_answered || hanging_[1].is_answered);
  held_.Release();
  ExpectHangingAnswered();
}

TEST_F(AdminReads, AreRefusedAtOnceWhileTooManyWait) {
  Start();
  const BeatingNode node(*stub_, *key_);
  HoldThreads();
  std::deque<PendingHistory> calls;
  for (int i = 0; i <= kQueuedMax; ++i) AskHistory(calls.emplace_back());
  const auto refused = [&] {
    return std::ranges::find_if(calls, [](const auto& call) { return call.is_answered.load(); });
  };
  ASSERT_TRUE(AwaitFor([&] { return refused() != calls.end(); }, kLimit, "one is too many"));
  EXPECT_EQ(refused()->status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused()->status.error_message(),
              AllOf(HasSubstr("32 calls wait for 2 threads"), HasSubstr("try later")));
  const PendingHistory* const one = &*refused();
  held_.Release();
  ExpectHangingAnswered();
  for (const PendingHistory& call : calls) {
    ASSERT_TRUE(call.Await());
    EXPECT_EQ(call.status.ok(), &call != one) << call.status.error_message();
  }
}

TEST_F(AdminReads, WhoseCallerHasLeftAreNotBegun) {
  Start();
  const BeatingNode node(*stub_, *key_);
  HoldThreads();
  std::deque<PendingHistory> left;
  for (int i = 0; i < kQueuedMax; ++i) AskHistory(left.emplace_back());
  ExpectSessionsOpen();  // On the same connection, so the calls before have come.
  for (PendingHistory& call : left) call.context.TryCancel();
  for (const PendingHistory& call : left) {
    ASSERT_TRUE(call.Await());
    EXPECT_EQ(call.status.error_code(), grpc::CANCELLED);
  }
  ExpectSessionsOpen();  // The word that their caller has left has arrived, too.
  held_.Release();
  ExpectHangingAnswered();
  PendingHistory last;
  AskHistory(last);
  ASSERT_TRUE(last.Await());
  // One that gRPC takes long to tell of may have been begun.
  EXPECT_LT(held_.readers(), kThreads + kQueuedMax / 2);
}

TEST_F(AdminReads, ALongPlanKeepsNobodyWaitingAndEndsWithItsCaller) {
  Start();
  BeatingNode node(*stub_, *key_);
  v1::PlanTableRequest request;
  request.set_table_json(R"({"name": "big", "rows": 1000000000, "dim": 2048})");
  request.set_placement_json(R"({"sharding": "grid_shard", "min_partition": 4})");
  request.set_nodes(4096);
  request.set_devices_per_node(16);
  request.set_device_memory_bytes(std::int64_t{80} << 30);
  std::deque<PendingPlan> plans;
  for (int i = 0; i < kThreads + 1; ++i) {
    PendingPlan& call = plans.emplace_back();
    admin_->async()->PlanTable(&call.context, &request, &call.reply, call.OnDone());
  }
  ExpectSessionsOpen();
  node.Beat();
  EXPECT_TRUE(AwaitFor(
      [&] {
        return metrics_.Text().find("embla_heartbeats_total{node=\"n0\"} 1") != std::string::npos;
      },
      kLimit, "the heartbeat is heard"));
  for (PendingPlan& call : plans) call.context.TryCancel();
  for (const PendingPlan& call : plans) {
    ASSERT_TRUE(call.Await());
    EXPECT_EQ(call.status.error_code(), grpc::CANCELLED);
  }
  PendingHistory history;
  AskHistory(history);
  ASSERT_TRUE(history.Await());
  EXPECT_THAT(history.status, IsOk());
}

}  // namespace
}  // namespace embla
