// The state store in etcd over real members: the contract of every store, members that go, and
// leases. Skipped where etcd is not installed (deploy/install_packages.sh --tests).
#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/etcd/etcd_client.h"
#include "server/etcd/etcd_election.h"
#include "server/etcd/etcd_state_store.h"
#include "server/state_store/state_store_conformance.h"
#include "tests/testing/etcd_members.h"

namespace embla {
namespace {

using ::embla::testing::EtcdMembers;
using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;

constexpr char kSkipped[] =
    "SKIPPED: etcd is not installed (deploy/install_packages.sh --tests installs etcd-server)";

// One etcd for all tests of this program; every store has a prefix of its own.
EtcdMembers* Members() {
  static const std::unique_ptr<EtcdMembers> members = [] {
    if (EtcdMembers::Program().empty()) return std::unique_ptr<EtcdMembers>();
    auto started = EtcdMembers::Start(1);
    EXPECT_THAT(started, IsOk());
    return started.ok() ? *std::move(started) : nullptr;
  }();
  return members.get();
}

std::string NewPrefix() {
  static std::atomic<int> count = 0;
  return "/store" + std::to_string(++count);
}

std::unique_ptr<EtcdKv> Connect(const std::vector<std::string>& members) {
  auto client = MakeEtcdClient({.members = members});
  EXPECT_THAT(client, IsOk());
  return *std::move(client);
}

class EtcdHarness {
 public:
  EtcdHarness() { Reopen(); }
  StateStore& store() { return *store_; }
  void Reopen() {
    auto opened = EtcdStateStore::Open(*client_, Clock::Real(), {.prefix = prefix_});
    ASSERT_THAT(opened, IsOk());
    store_ = *std::move(opened);
  }

 private:
  const std::string prefix_ = NewPrefix();
  const std::unique_ptr<EtcdKv> client_ = Connect(Members()->clients());
  std::unique_ptr<EtcdStateStore> store_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Etcd, StateStoreConformance, EtcdHarness);

TEST(EtcdStateStoreOverMembers, GoesOnWithoutOneOfThreeAndStopsWithoutTwo) {
  auto members = EtcdMembers::Start(3);
  ASSERT_THAT(members, IsOk());
  const std::unique_ptr<EtcdKv> client = Connect((*members)->clients());
  auto store =
      EtcdStateStore::Open(*client, Clock::Real(), {.prefix = "/p", .timeout = absl::Seconds(20)});
  ASSERT_THAT(store, IsOk());
  for (int member = 0; member < 3; ++member) {
    (*members)->Kill(member);
    CommitOne(**store, PutOf("k" + std::to_string(member), "killed"));
    ASSERT_THAT((*members)->Restart(member), IsOk());
    ASSERT_THAT((*members)->AwaitLeader(), IsOk());
    CommitOne(**store, PutOf("k" + std::to_string(member), "back"));
  }
  (*members)->member(1).Signal(SIGSTOP);
  CommitOne(**store, PutOf("k", "one is stopped"));
  (*members)->member(1).Signal(SIGCONT);
  auto second =
      EtcdStateStore::Open(*client, Clock::Real(), {.prefix = "/p", .timeout = absl::Seconds(2)});
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ((*second)->revision(), (*store)->revision());
  EXPECT_EQ((*second)->List("")->size(), 4u);
  (*members)->Kill(0);
  (*members)->Kill(2);
  const std::vector<StateWrite> writes = {PutOf("k", "lost")};
  EXPECT_THAT((*second)->Commit({}, writes).status(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(EtcdElectionOverMembers, TheNextLeadsWhenTheLeaseIsOverAndTheFirstCannotWrite) {
  const std::unique_ptr<EtcdKv> client = Connect(Members()->clients());
  const std::string prefix = NewPrefix();
  const EtcdElectionOptions options{.prefix = prefix + "/election/"};
  EtcdElection first(*client, Clock::Real(), options, "first");
  EtcdElection second(*client, Clock::Real(), options, "second");
  const auto view = first.Step();
  ASSERT_THAT(view, IsOk());
  ASSERT_TRUE(view->leads);
  auto store =
      EtcdStateStore::Open(*client, Clock::Real(), {.prefix = prefix, .fence = view->fence});
  ASSERT_THAT(store, IsOk());
  CommitOne(**store, PutOf("a", "1"));
  EXPECT_EQ(second.Step()->leader, "first");
  EXPECT_TRUE(
      testing::AwaitFor([&] { return second.Step()->leads; }, absl::Seconds(30), "the lease ends"));
  const std::vector<StateWrite> writes = {PutOf("a", "2")};
  EXPECT_THAT((*store)->Commit({}, writes).status(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_LT(first.leads_until(), Clock::Real().Now());
  second.Resign();
  EXPECT_TRUE(testing::AwaitFor(
      [&] {
        const auto step = first.Step();
        return step.ok() && step->leads;
      },
      absl::Seconds(10), "the first leads again"));
  first.Resign();
}

}  // namespace
}  // namespace embla

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  if (embla::testing::EtcdMembers::Program().empty()) {
    std::puts(embla::kSkipped);
    return 77;
  }
  return RUN_ALL_TESTS();
}
