// Random requests, moves, closings and changes of members against a model that looks at each unit
// by itself: what is refused, which units step with whose requests, who is answered what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "core/base/testing/status_matchers.h"
#include "server/steps/sync_steps.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using Code = absl::StatusCode;
using Ticket = SyncSteps::Ticket;

constexpr std::uint32_t kUnits = 6;
constexpr std::uint32_t kRanks = 3;
constexpr std::uint64_t kAheadMax = 2;

UnitSet SetOf(const std::set<std::uint32_t>& numbers) {
  UnitSet units;
  for (const std::uint32_t u : numbers) {
    units.Include(UnitSet({.column_granule = 0, .begin = u, .end = u + 1}));
  }
  return units;
}

struct Request {
  Contribution contribution;
  std::set<std::uint32_t> claim;
  std::set<std::uint32_t> waits;
  std::set<std::uint32_t> frozen;
  std::set<std::uint32_t> moved;
};

struct Unit {
  bool is_here = true;
  bool is_frozen = false;
  std::uint64_t next_step = 0;
  std::map<std::pair<std::uint64_t, Rank>, Ticket> carriers;
  std::set<std::pair<SessionId, UpdateSeq>> window;
};

class Plain {
 public:
  Code Decide(Request& request) const {
    const Contribution& c = request.contribution;
    bool is_over = false;
    std::uint64_t least = UINT64_MAX;
    std::set<std::uint32_t> open;
    for (const std::uint32_t u : request.claim) {
      const Unit& unit = units_[u];
      if (!unit.is_here) request.moved.insert(u);
      if (!unit.is_here || unit.window.contains({c.session, c.seq})) continue;
      if (unit.next_step > c.step) {
        is_over = true;
        continue;
      }
      open.insert(u);
      least = std::min(least, unit.next_step);
    }
    const StepMembers* const members = plan_.At(c.step);
    if (is_over && !(c.resumes && members != nullptr && members->Awaits(c.rank))) {
      return Code::kFailedPrecondition;
    }
    if (is_over && plan_.open.has_value()) return Code::kUnavailable;
    if (open.empty()) return Code::kOk;
    if (members == nullptr || !members->Has(c.rank)) return Code::kFailedPrecondition;
    for (const auto& [ticket, other] : requests_) {
      const Contribution& o = other.contribution;
      const bool is_same = o.IsOf(c.session, c.seq);
      if (is_same != (o.step == c.step && o.rank == c.rank)) return Code::kInvalidArgument;
      if (o.step == c.step && o.learning_rate != c.learning_rate) return Code::kInvalidArgument;
    }
    if (c.step > least + kAheadMax) return Code::kResourceExhausted;
    for (const std::uint32_t u : open) {
      (units_[u].is_frozen ? request.frozen : request.waits).insert(u);
    }
    return Code::kOk;
  }

  void Take(Ticket ticket, const Request& request) {
    refused_at_once_ = !request.frozen.empty() || !request.moved.empty();
    if (refused_at_once_) return;
    for (const std::uint32_t u : request.waits) {
      units_[u].carriers.try_emplace({request.contribution.step, request.contribution.rank},
                                     ticket);
    }
    requests_[ticket] = request;
  }

  bool CanStep(std::uint32_t u, std::uint64_t step) const {
    const Unit& unit = units_[u];
    if (!unit.is_here || unit.is_frozen || unit.next_step != step) return false;
    const StepMembers* const members = plan_.At(step);
    if (plan_.open.has_value() || members == nullptr || members->fails()) return false;
    return std::all_of(members->ranks.begin(), members->ranks.end(), [&](Rank rank) {
      return unit.carriers.contains({step, rank});
    });
  }
  // The lowest step that units can make.
  std::set<std::uint32_t> Ready() const {
    std::uint64_t lowest = UINT64_MAX;
    for (std::uint32_t u = 0; u < kUnits; ++u) {
      if (CanStep(u, units_[u].next_step)) lowest = std::min(lowest, units_[u].next_step);
    }
    std::set<std::uint32_t> ready;
    for (std::uint32_t u = 0; u < kUnits; ++u) {
      if (CanStep(u, lowest)) ready.insert(u);
    }
    return ready;
  }
  void Make(const std::set<std::uint32_t>& ready) {
    for (const std::uint32_t u : ready) {
      Unit& unit = units_[u];
      const std::uint64_t step = unit.next_step;
      for (auto& [ticket, request] : requests_) {
        if (request.contribution.step == step) request.waits.erase(u);
      }
      for (std::uint32_t r = 0; r < kRanks; ++r) {
        const auto carrier = unit.carriers.find({step, Rank{r}});
        if (carrier == unit.carriers.end()) continue;
        const Contribution& c = requests_.at(carrier->second).contribution;
        unit.window.insert({c.session, c.seq});
        unit.carriers.erase(carrier);
      }
      unit.next_step = plan_.NextMade(step + 1);
    }
  }
  // Answers.
  std::map<Ticket, Request> Freeze(std::uint32_t u) {
    units_[u].is_frozen = true;
    std::set<std::pair<SessionId, UpdateSeq>> names;
    for (const auto& [ticket, request] : requests_) {
      const Contribution& c = request.contribution;
      if (request.waits.contains(u)) names.insert({c.session, c.seq});
    }
    std::map<Ticket, Request> gone = TakeIf([&](const Request& request) {
      return names.contains({request.contribution.session, request.contribution.seq});
    });
    for (auto& [ticket, request] : gone) {
      if (request.waits.erase(u) > 0) request.frozen.insert(u);
    }
    return gone;
  }
  void Follow(const StepPlan& plan) {
    plan_ = plan;
    for (Unit& unit : units_) unit.next_step = plan.NextMade(unit.next_step);
  }
  // The requests that are done, without them.
  std::map<Ticket, Request> TakeDone() {
    return TakeIf([](const Request& request) { return request.waits.empty(); });
  }
  template <typename Goes>
  std::map<Ticket, Request> TakeIf(Goes goes) {
    std::map<Ticket, Request> gone;
    for (const auto& [ticket, request] : requests_) {
      if (goes(request)) gone[ticket] = request;
    }
    for (const auto& [ticket, request] : gone) requests_.erase(ticket);
    for (Unit& unit : units_) {
      std::erase_if(unit.carriers, [&](const auto& c) { return gone.contains(c.second); });
    }
    return gone;
  }

  Unit& unit(std::uint32_t u) { return units_[u]; }
  const StepPlan& plan() const { return plan_; }
  std::size_t waiting() const { return requests_.size(); }
  bool refused_at_once() const { return refused_at_once_; }

 private:
  std::vector<Unit> units_ = std::vector<Unit>(kUnits);
  std::map<Ticket, Request> requests_;
  StepPlan plan_;
  bool refused_at_once_ = false;  // The last request that was offered.
};

class SyncStepsRandom {
 public:
  explicit SyncStepsRandom(std::uint64_t seed) : random_(seed) {
    StepPlan plan{.version = PlanVersion{1}, .members = {{.first_step = 0}}};
    for (std::uint32_t r = 0; r < kRanks; ++r) plan.members[0].ranks.push_back(Rank{r});
    steps_.Follow(plan);
    plain_.Follow(plan);
    steps_.Add(UnitSet({.column_granule = 0, .begin = 0, .end = kUnits}), 0);
  }

  void Act() {
    const std::uint64_t what = random_() % 130;
    const auto u = static_cast<std::uint32_t>(random_() % kUnits);
    if (what < 100) {
      Offer();
    } else if (what < 105) {
      if (!plain_.unit(u).is_here || plain_.unit(u).is_frozen) return;
      const std::map<Ticket, Request> gone = plain_.Freeze(u);
      ExpectDone(steps_.Freeze(SetOf({u})), gone);
    } else if (what < 113) {
      EndFreeze(u);
    } else if (what < 122) {
      Return(u);
    } else if (what < 124) {
      Close(static_cast<std::uint32_t>(random_() % kRanks));
    } else {
      ChangeMembers();
    }
    MakeSteps();
    EXPECT_EQ(steps_.waiting().size(), plain_.waiting());
  }

  int made() const { return made_; }
  int refused() const { return refused_; }
  int changes() const { return changes_; }

 private:
  void Offer() {
    Request request;
    const auto rank = static_cast<std::uint32_t>(random_() % kRanks);
    std::uint64_t least = UINT64_MAX;
    for (std::uint32_t u = 0; u < kUnits; ++u) {
      least = std::min(least, plain_.unit(u).next_step);
      const bool is_refused = !plain_.unit(u).is_here || plain_.unit(u).is_frozen;
      const bool is_claimed = is_refused ? random_() % 20 == 0 : random_() % 4 != 0;
      if (!is_claimed) continue;
      request.claim.insert(u);
    }
    Contribution& c = request.contribution;
    c.step = least + (random_() % 3 != 0 ? 0 : random_() % 4);
    c.rank = Rank{rank};
    c.session = SessionId{1 + rank + kRanks * lives_[rank]};
    c.seq = UpdateSeq{c.step + 1 + (random_() % 40 == 0 ? 7 : 0)};
    c.resumes = lives_[rank] > 0 && random_() % 2 == 0;
    if (random_() % 40 == 0) c.learning_rate = 0.5f;
    c.plan_version = PlanVersion{1};
    c.bytes = 1;
    c.claim = SetOf(request.claim);
    std::set<std::uint32_t> applied;
    for (const std::uint32_t u : request.claim) {
      const bool has_it = plain_.unit(u).window.contains({c.session, c.seq});
      if (plain_.unit(u).is_here && has_it) applied.insert(u);
    }
    const Ticket ticket = ++tickets_;
    const Code expected = plain_.Decide(request);
    const auto offer = steps_.Decide(c, SetOf(applied));
    ASSERT_EQ(offer.status().code(), expected) << offer.status();
    if (!offer.ok()) return void(++refused_);
    const auto answer = steps_.Take(ticket, c, *offer);
    plain_.Take(ticket, request);
    std::vector<SyncSteps::Answer> answers;
    if (answer.has_value()) answers.push_back(*answer);
    std::map<Ticket, Request> done = plain_.TakeDone();
    if (plain_.refused_at_once()) done[ticket] = request;
    ExpectDone(answers, done);
  }

  void MakeSteps() {
    for (;;) {
      const auto ready = steps_.Ready();
      const std::set<std::uint32_t> expected = plain_.Ready();
      ASSERT_EQ(ready.has_value(), !expected.empty());
      if (!ready.has_value()) return;
      ASSERT_EQ(ready->units, SetOf(expected));
      ExpectParts(*ready, expected);
      if (random_() % 30 == 0) {
        std::set<std::pair<SessionId, UpdateSeq>> names;
        for (const SyncSteps::Part& part : ready->parts) names.insert({part.session, part.seq});
        ExpectRefused(steps_.Withdraw(*ready, absl::ResourceExhaustedError("full")),
                      plain_.TakeIf([&](const Request& r) {
                        return names.contains({r.contribution.session, r.contribution.seq});
                      }),
                      Code::kResourceExhausted);
        continue;
      }
      plain_.Make(expected);
      ExpectDone(steps_.Commit(*ready), plain_.TakeDone());
      ++made_;
    }
  }

  void ExpectParts(const SyncSteps::ReadyStep& ready, const std::set<std::uint32_t>& units) {
    std::set<std::tuple<std::uint32_t, Rank, Ticket>> expected;
    std::set<std::tuple<std::uint32_t, Rank, Ticket>> parts;
    for (const std::uint32_t u : units) {
      ASSERT_EQ(plain_.unit(u).next_step, ready.step);
      for (const auto& [key, ticket] : plain_.unit(u).carriers) {
        if (key.first == ready.step) expected.insert({u, key.second, ticket});
      }
      for (const SyncSteps::Part& part : ready.parts) {
        if (part.units.Meets(SetOf({u}))) parts.insert({u, part.rank, part.ticket});
      }
    }
    EXPECT_EQ(parts, expected);
    EXPECT_TRUE(std::is_sorted(ready.parts.begin(), ready.parts.end(),
                               [](const auto& a, const auto& b) { return a.rank < b.rank; }));
  }

  static void ExpectDone(const std::vector<SyncSteps::Answer>& answers,
                         const std::map<Ticket, Request>& expected) {
    ASSERT_EQ(answers.size(), expected.size());
    for (const SyncSteps::Answer& answer : answers) {
      ASSERT_TRUE(expected.contains(answer.ticket));
      EXPECT_THAT(answer.status, IsOk());
      EXPECT_EQ(answer.frozen, SetOf(expected.at(answer.ticket).frozen));
      EXPECT_EQ(answer.moved, SetOf(expected.at(answer.ticket).moved));
      EXPECT_EQ(answer.again, SetOf(expected.at(answer.ticket).waits));
    }
  }
  static void ExpectRefused(const std::vector<SyncSteps::Answer>& answers,
                            const std::map<Ticket, Request>& expected, Code code) {
    ASSERT_EQ(answers.size(), expected.size());
    for (const SyncSteps::Answer& answer : answers) {
      EXPECT_TRUE(expected.contains(answer.ticket));
      EXPECT_THAT(answer.status, StatusIs(code));
    }
  }

  void EndFreeze(std::uint32_t u) {
    Unit& unit = plain_.unit(u);
    if (!unit.is_frozen) return;
    unit.is_frozen = false;
    if (random_() % 2 == 0) return steps_.Unfreeze(SetOf({u}));
    unit.is_here = false;
    steps_.Remove(SetOf({u}));
  }
  // From another node, which may have made a step of it.
  void Return(std::uint32_t u) {
    Unit& unit = plain_.unit(u);
    if (unit.is_here) return;
    unit.is_here = true;
    unit.next_step = plain_.plan().NextMade(unit.next_step + random_() % 2);
    steps_.Add(SetOf({u}), unit.next_step);
  }
  void Close(std::uint32_t rank) {
    const SessionId session{1 + rank + kRanks * lives_[rank]};
    ++lives_[rank];
    ExpectRefused(steps_.Drop(session), plain_.TakeIf([&](const Request& r) {
      return r.contribution.session == session;
    }),
                  Code::kPermissionDenied);
  }

  void ChangeMembers() {
    StepPlan plan = plain_.plan();
    const PlanVersion version{ToInt(plan.version) + 1};
    if (plan.open.has_value()) {
      plan = Decided(plan, steps_.first_unmade(), version);
    } else {
      const Rank rank{static_cast<std::uint32_t>(random_() % kRanks)};
      const bool is_member = plan.members.back().Awaits(rank);
      const auto leaves =
          random_() % 4 == 0 ? MemberChange::Kind::kFail : MemberChange::Kind::kClose;
      const std::uint64_t made = steps_.first_unmade();
      const auto opened = Opened(plan,
                                 {.kind = is_member ? leaves : MemberChange::Kind::kJoin,
                                  .step = made > 0 && random_() % 2 == 0 ? made - 1 : made,
                                  .ranks = {rank}},
                                 version);
      ASSERT_THAT(opened, IsOk());
      plan = *opened;
    }
    ++changes_;
    plain_.Follow(plan);
    const auto is_out = [&](const Request& r) {
      const StepMembers* const members = plan.At(r.contribution.step);
      return members == nullptr || !members->Has(r.contribution.rank);
    };
    ExpectRefused(steps_.Follow(plan), plain_.TakeIf(is_out), Code::kFailedPrecondition);
  }

  std::mt19937_64 random_;
  SyncSteps steps_{{.steps_ahead_max = kAheadMax}};
  Plain plain_;
  Ticket tickets_ = 0;
  std::uint64_t lives_[kRanks] = {};
  int made_ = 0;
  int refused_ = 0;
  int changes_ = 0;
};

TEST(SyncStepsRandom, DecidesAsEachUnitByItself) {
  int made = 0;
  int refused = 0;
  int changes = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    SyncStepsRandom world(seed);
    for (int i = 0; i < 400; ++i) {
      world.Act();
      ASSERT_FALSE(::testing::Test::HasFailure()) << "action " << i;
    }
    made += world.made();
    refused += world.refused();
    changes += world.changes();
  }
  std::printf("seeds 1..200: %d steps made, %d requests refused, %d changes of members\n", made,
              refused, changes);
  EXPECT_GT(made, 2000);
  EXPECT_GT(refused, 5000);
  EXPECT_GT(changes, 1000);
}

}  // namespace
}  // namespace embla
