#include "server/etcd/etcd_election.h"

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/ids.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/etcd/etcd_state_store.h"
#include "server/etcd/testing/fake_etcd.h"

namespace embla {
namespace {

using ::embla::testing::EtcdFault;
using ::embla::testing::FakeEtcd;
using ::embla::testing::FakeEtcdClient;
using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;

// A coordinator's process: stands for election and, when it leads, has the store open.
struct Candidate {
  Candidate(FakeEtcd& etcd, absl::Time now, std::string its_name)
      : name(std::move(its_name)), clock(now), client(etcd, clock) {
    election = std::make_unique<EtcdElection>(client, clock,
                                              EtcdElectionOptions{.prefix = "/p/election/"}, name);
  }

  bool Step() {
    const absl::StatusOr<ElectionView> view = election->Step();
    if (view.ok()) {
      leads = view->leads;
      fence = view->fence;
    }
    if (clock.Now() >= election->leads_until()) leads = false;
    if (!leads) store.reset();
    return leads;
  }
  absl::Status Open() {
    auto opened = EtcdStateStore::Open(client, clock,
                                       {.prefix = "/p",
                                        .fence = fence,
                                        .timeout = absl::Seconds(2),
                                        .pause = absl::ZeroDuration()});
    if (opened.ok()) store = *std::move(opened);
    term = ToInt(fence.front().revision);
    return opened.status();
  }

  const std::string name;
  ManualClock clock;
  FakeEtcdClient client;
  std::unique_ptr<EtcdElection> election;
  std::unique_ptr<EtcdStateStore> store;
  std::vector<EtcdCompare> fence;  // While it leads.
  std::int64_t term = 0;           // By which the store is open.
  bool leads = false;
};

class EtcdElectionTest : public ::testing::Test {
 protected:
  std::unique_ptr<Candidate> Make(const std::string& name) {
    return std::make_unique<Candidate>(etcd_, clock_.Now(), name);
  }
  void Pass(absl::Duration time, std::initializer_list<Candidate*> candidates) {
    clock_.Advance(time);
    for (Candidate* const candidate : candidates) candidate->clock.Advance(time);
  }

  ManualClock clock_{absl::UnixEpoch()};
  FakeEtcd etcd_{clock_};
};

absl::Status Write(Candidate& candidate, const std::string& value) {
  const std::vector<StateWrite> writes = {{"k", value}};
  return candidate.store->Commit({}, writes).status();
}

TEST_F(EtcdElectionTest, TheFirstLeadsAndTheOthersKnowIt) {
  const auto a = Make("a");
  const auto b = Make("b");
  EXPECT_TRUE(a->Step());
  EXPECT_FALSE(b->Step());
  EXPECT_EQ(b->election->Step()->leader, "a");
  ASSERT_THAT(a->election->SetValue("a, who has the store open"), IsOk());
  EXPECT_EQ(b->election->Step()->leader, "a, who has the store open");
  EXPECT_TRUE(a->Step());
}

TEST_F(EtcdElectionTest, TheNextLeadsAtOnceAfterAResignation) {
  const auto a = Make("a");
  const auto b = Make("b");
  a->Step();
  b->Step();
  a->election->Resign();
  EXPECT_TRUE(b->Step());
}

TEST_F(EtcdElectionTest, TheNextLeadsWhenTheLeaseOfOneThatStoppedIsOver) {
  const auto a = Make("a");
  const auto b = Make("b");
  ASSERT_TRUE(a->Step());
  ASSERT_THAT(a->Open(), IsOk());
  b->Step();
  for (int i = 0; i < 4; ++i) {
    Pass(absl::Milliseconds(700), {b.get()});
    EXPECT_FALSE(b->Step());
  }
  Pass(absl::Milliseconds(700), {b.get()});
  EXPECT_TRUE(b->Step());
  ASSERT_THAT(b->Open(), IsOk());
  // The one that was stopped goes on, as if no time had passed.
  EXPECT_THAT(Write(*a, "old"), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Write(*b, "new"), IsOk());
  EXPECT_FALSE(a->Step());
  EXPECT_EQ(a->election->Step()->leader, "b");
}

TEST_F(EtcdElectionTest, ALeaderThatEtcdDoesNotAnswerStopsByItsOwnClock) {
  const auto a = Make("a");
  ASSERT_TRUE(a->Step());
  a->client.fault = [] { return EtcdFault::kRequestLost; };
  const absl::Time cut = a->clock.Now();
  while (a->Step()) a->clock.Advance(absl::Milliseconds(250));
  EXPECT_LE(a->clock.Now() - cut, absl::Seconds(4));
  EXPECT_GE(a->clock.Now() - cut, absl::Seconds(2));
}

// Three candidates whose processes stop, whose clocks go wrong and whose requests get lost and come
// late. Every leader appends its name and a number to a list in the store. No two of them ever
// succeed in turns: once a later leader has written, an earlier one never does again; and what was
// acknowledged is in the list.
TEST_F(EtcdElectionTest, TwoLeadersNeverBothSucceedInWriting) {
  std::mt19937 random(testing::TestSeed());
  std::vector<std::unique_ptr<Candidate>> candidates;
  for (const char* const name : {"a", "b", "c"}) candidates.push_back(Make(name));
  std::uint64_t bad_pct = 0;
  for (const auto& candidate : candidates) {
    candidate->client.fault = [&] {
      if (random() % 100 >= bad_pct) return EtcdFault::kNone;
      return static_cast<EtcdFault>(1 + random() % 3);
    };
  }
  std::int64_t newest = 0;  // The term of the latest leader that has written.
  std::int64_t terms = 0;
  std::uint64_t acknowledged = 0;
  std::uint64_t refused = 0;
  std::uint64_t both = 0;  // Moments at which two believe to lead.
  for (int step = 0; step < 30'000; ++step) {
    if (step % 500 == 0) bad_pct = random() % 3 == 0 ? random() % 60 : random() % 8;
    const absl::Duration passed = absl::Milliseconds(random() % 200);
    clock_.Advance(passed);
    for (const auto& candidate : candidates) {
      // Clocks that run from half to one and a half times as fast, or that stand.
      if (random() % 50 != 0) candidate->clock.Advance(passed * (50 + random() % 100) / 100);
    }
    if (random() % 40 == 0) etcd_.DeliverLate();
    if (random() % 400 == 0) etcd_.ProlongLeases();
    Candidate& candidate = *candidates[random() % candidates.size()];
    // A process that is stopped does not step; one that goes on acts on what it believed.
    const bool was_leading = candidate.leads && candidate.store != nullptr;
    if (random() % 3 != 0 || !was_leading) candidate.Step();
    if (candidate.leads && candidate.store == nullptr) (void)candidate.Open();
    int leading = 0;
    for (const auto& each : candidates) leading += each->store != nullptr ? 1 : 0;
    both += leading > 1 ? 1 : 0;
    if (candidate.store == nullptr) continue;
    const std::int64_t term = candidate.term;
    const auto count = candidate.store->Get("count");
    const std::string next = std::to_string(count.ok() ? std::stoull(count->value) + 1 : 1);
    const std::vector<StateCompare> compares = {{"count", count.ok() ? count->revision : kAbsent}};
    const std::vector<StateWrite> writes = {
        {"count", next}, {"list/" + next, absl::StrCat(candidate.name, " ", term)}};
    if (!candidate.store->Commit(compares, writes).ok()) {
      ++refused;
      candidate.store.reset();
      continue;
    }
    ++acknowledged;
    ASSERT_GE(term, newest) << "a deposed leader wrote, step " << step;
    terms += term > newest ? 1 : 0;
    newest = term;
  }
  etcd_.DeliverLate();
  clock_.Advance(absl::Seconds(10));
  const auto reader = Make("reader");
  ASSERT_TRUE(reader->Step());
  ASSERT_THAT(reader->Open(), IsOk());
  const std::vector<StateEntry> list = *reader->store->List("list/");
  std::cout << "terms=" << terms << " acknowledged=" << acknowledged << " refused=" << refused
            << " in the list=" << list.size() << " moments with two leaders=" << both << '\n';
  EXPECT_GE(list.size(), acknowledged);
  EXPECT_EQ(reader->store->Get("count")->value, std::to_string(list.size()));
  EXPECT_GE(terms, 20);
  EXPECT_GE(both, 1u);
}

}  // namespace
}  // namespace embla
