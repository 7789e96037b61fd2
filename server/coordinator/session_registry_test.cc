// Sessions' cost in the store, and that no copy of it gives a number twice.
#include "server/coordinator/session_registry.h"

#include <set>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/state_store/memory_state_store.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;

// Counts the bytes that are written.
class CountingStore final : public StateStore {
 public:
  std::size_t written() const { return written_; }

  absl::StatusOr<StateEntry> Get(std::string_view key) const override { return inner_.Get(key); }
  absl::StatusOr<std::vector<StateEntry>> List(std::string_view prefix) const override {
    return inner_.List(prefix);
  }
  absl::StatusOr<Revision> Commit(std::span<const StateCompare> compares,
                                  std::span<const StateWrite> writes) override {
    for (const StateWrite& write : writes) {
      written_ += write.key.size() + write.value.value_or("").size();
    }
    return inner_.Commit(compares, writes);
  }
  std::unique_ptr<StateWatch> Watch(std::string_view prefix) override {
    return inner_.Watch(prefix);
  }
  Revision revision() const override { return inner_.revision(); }

  // A copy of what is there now.
  std::unique_ptr<CountingStore> Copy() const {
    auto copy = std::make_unique<CountingStore>();
    const std::vector<StateEntry> entries = *inner_.List("");
    for (const StateEntry& entry : entries) {
      const StateWrite writes[] = {{entry.key, entry.value}};
      EXPECT_THAT(copy->Commit({}, writes), IsOk());
    }
    return copy;
  }

 private:
  MemoryStateStore inner_;
  std::size_t written_ = 0;
};

SessionRegistry Load(StateStore& store, std::uint32_t boot) {
  return *SessionRegistry::Load(store, boot);
}

std::vector<SessionId> Give(SessionRegistry& registry, int count) {
  std::vector<SessionId> sessions;
  for (int i = 0; i < count; ++i) sessions.push_back(*registry.Next());
  return sessions;
}

TEST(SessionRegistryNext, GivesNoNumberAgainWhateverCopyOfTheStoreComesBack) {
  CountingStore store;
  std::set<SessionId> given;
  std::vector<std::unique_ptr<CountingStore>> copies;
  for (std::uint32_t boot = 1; boot <= 5; ++boot) {
    copies.push_back(store.Copy());
    SessionRegistry registry = Load(store, boot * 1000);
    for (const SessionId session : Give(registry, 1500)) {
      EXPECT_TRUE(given.insert(session).second) << ToInt(session);
    }
  }
  std::uint32_t boot = 77;
  for (const auto& copy : copies) {
    SessionRegistry registry = Load(*copy, ++boot);
    for (const SessionId session : Give(registry, 1500)) {
      EXPECT_TRUE(given.insert(session).second) << ToInt(session);
    }
  }
}

TEST(SessionRegistryNext, AProcessWhoseNumberIsTakenTakesAnother) {
  MemoryStateStore store;
  SessionRegistry first = Load(store, 5);
  const SessionId session = *first.Next();
  SessionRegistry second = Load(store, 5);
  EXPECT_NE(*second.Next(), session);
  EXPECT_TRUE(second.WasGiven(session));
  EXPECT_FALSE(second.WasGiven(SessionId{1}));
}

TEST(SessionRegistryClose, WritesAsMuchForOneSessionHoweverManyAreClosed) {
  for (const int closes : {1500, 20'000}) {
    CountingStore store;
    SessionRegistry registry = Load(store, 5);
    const std::vector<SessionId> sessions = Give(registry, 2 * closes);
    const std::size_t before = store.written();
    for (int i = 0; i < closes; ++i) {
      ASSERT_THAT(registry.Close({&sessions[static_cast<std::size_t>(2 * i)], 1}), IsOk());
    }
    EXPECT_LT((store.written() - before) / static_cast<std::size_t>(closes), 400u) << closes;
    // News for nodes do not grow either.
    std::size_t told = 0;
    while (registry.has_news()) told += registry.TakeNews().closed.refused.size();
    EXPECT_EQ(told, static_cast<std::size_t>(closes));
  }
}

TEST(SessionRegistryClose, IsThereAfterARestart) {
  MemoryStateStore store;
  std::vector<SessionId> sessions;
  {
    SessionRegistry registry = Load(store, 5);
    sessions = Give(registry, 3000);
    for (std::size_t i = 0; i < sessions.size(); i += 3) {
      ASSERT_THAT(registry.Close({&sessions[i], 1}), IsOk());
    }
  }
  SessionRegistry registry = Load(store, 6);
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    EXPECT_EQ(registry.IsClosed(sessions[i]), i % 3 == 0) << i;
  }
  EXPECT_EQ(registry.all().closed.refused.size(), 1000u);
}

// A node with slices may be away for weeks, while trainers come and go.
TEST(SessionRegistryNews, ThatWaitForANodeAreBoundedAndSettleNothingTooEarly) {
  MemoryStateStore store;
  SessionRegistry registry = Load(store, 5);
  const std::vector<SessionId> sessions = Give(registry, 2 * 3000);
  std::vector<std::pair<SessionId, std::uint64_t>> told;  // With the number of their news.
  for (std::size_t i = 0; i < sessions.size(); i += 2) {
    ASSERT_THAT(registry.Close({&sessions[i], 1}), IsOk());
    told.emplace_back(sessions[i], registry.TakeNews().number);
    ASSERT_LE(registry.news_waiting(), SessionRegistry::kNewsWaitingMax);
  }
  for (const auto& [session, number] : told) ASSERT_GE(registry.NewsOf(session), number);
  const std::uint64_t middle = told[told.size() / 2].second;
  registry.Settle(middle);
  for (const auto& [session, number] : told) {
    ASSERT_TRUE(!registry.IsSettled(session) || number <= middle) << ToInt(session);
  }
  registry.Settle(told.back().second);
  for (const auto& [session, number] : told) ASSERT_TRUE(registry.IsSettled(session));
  EXPECT_EQ(registry.news_waiting(), 0u);
}

TEST(SessionRegistryUnite, TakesInWhatOthersKnowAndBoundsIt) {
  MemoryStateStore store;
  SessionRegistry registry = Load(store, 5);
  SessionSet known;
  known.Insert(
      {SessionId{(std::uint64_t{3} << 32) + 1}, SessionId{(std::uint64_t{3} << 32) + 200'000}});
  ASSERT_THAT(registry.Unite(known), IsOk());
  EXPECT_EQ(registry.closed().refused, known);
  EXPECT_EQ(Load(store, 6).closed().refused, known);
  SessionSet absurd;
  absurd.Insert({SessionId{1}, SessionId{UINT64_MAX - 1}});
  EXPECT_THAT(registry.Unite(absurd), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(SessionRegistryLoad, NamesAKeyThatIsNoRecord) {
  for (const StateWrite& write :
       {StateWrite{"sessions/boots/x", "{}"}, StateWrite{"sessions/boots/0000000005", "[]"},
        StateWrite{"sessions/closed/00000000000000000001", R"({"bits": "zz"})"},
        StateWrite{"sessions/of/t0", R"({"client_nonce": 0, "session": 1})"}}) {
    MemoryStateStore store;
    ASSERT_THAT(store.Commit({}, {&write, 1}), IsOk());
    EXPECT_THAT(SessionRegistry::Load(store, 5).status(),
                StatusIs(absl::StatusCode::kDataLoss, ::testing::HasSubstr(write.key)));
  }
}

}  // namespace
}  // namespace embla
