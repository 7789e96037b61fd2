#include "server/migration/session_set.h"

#include <random>
#include <set>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::Pair;

SessionSet Of(std::initializer_list<std::uint64_t> sessions) {
  SessionSet set;
  for (const std::uint64_t session : sessions) set.Insert(SessionId{session});
  return set;
}

TEST(SessionSet, JoinsNeighboursToRanges) {
  EXPECT_THAT(Of({3, 1, 2, 7, 7}).ranges(),
              ElementsAre(Pair(SessionId{1}, SessionId{3}), Pair(SessionId{7}, SessionId{7})));
  EXPECT_EQ(Of({3, 1, 2, 7, 7}).size(), 4u);
}

TEST(SessionSet, HasWhatASetHas) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    SessionSet sets[2];
    std::set<std::uint64_t> models[2];
    for (int i = 0; i < 60; ++i) {
      const std::uint64_t session = 1 + random() % 80;
      const int which = static_cast<int>(random() % 2);
      sets[which].Insert(SessionId{session});
      models[which].insert(session);
    }
    sets[0].Include(sets[1]);
    models[0].insert(models[1].begin(), models[1].end());
    EXPECT_EQ(sets[0].size(), models[0].size()) << "seed " << seed;
    for (std::uint64_t session = 0; session <= 82; ++session) {
      EXPECT_EQ(sets[0].Has(SessionId{session}), models[0].contains(session))
          << "seed " << seed << " session " << session;
    }
    const auto again = SessionSet::FromRanges({sets[0].ranges().begin(), sets[0].ranges().end()});
    ASSERT_THAT(again, IsOk());
    EXPECT_EQ(*again, sets[0]) << "seed " << seed;
  }
}

TEST(SessionSet, RefusesRangesThatAreNone) {
  const auto refuses = [](std::vector<SessionSet::Range> ranges) {
    return absl::IsInvalidArgument(SessionSet::FromRanges(std::move(ranges)).status());
  };
  EXPECT_TRUE(refuses({{SessionId{0}, SessionId{4}}}));
  EXPECT_TRUE(refuses({{SessionId{4}, SessionId{3}}}));
  EXPECT_TRUE(refuses({{SessionId{1}, SessionId{3}}, {SessionId{3}, SessionId{5}}}));
  EXPECT_TRUE(refuses({{SessionId{1}, SessionId{3}}, {SessionId{4}, SessionId{5}}}));
}

}  // namespace
}  // namespace embla
