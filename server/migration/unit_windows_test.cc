#include "server/migration/unit_windows.h"

#include <random>
#include <set>

#include "absl/status/status.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOkAndHolds;
using ::embla::testing::StatusIs;
using Verdict = UnitWindows::Verdict;
constexpr SessionId kSession{7};

TEST(UnitWindowsClassify, RecordedIsAppliedAndOtherSessionsAreNot) {
  UnitWindows windows;
  windows.Record(kSession, UpdateSeq{3}, UpdateSeq{1});
  EXPECT_EQ(windows.Classify(kSession, UpdateSeq{3}, UpdateSeq{1}), Verdict::kApplied);
  EXPECT_EQ(windows.Classify(kSession, UpdateSeq{2}, UpdateSeq{1}), Verdict::kNew);
  EXPECT_EQ(windows.Classify(SessionId{8}, UpdateSeq{3}, UpdateSeq{1}), Verdict::kNew);
}

TEST(UnitWindowsClassify, WindowIs256WideFromTheFirstIncomplete) {
  const UnitWindows windows;
  EXPECT_EQ(windows.Classify(kSession, UpdateSeq{256}, UpdateSeq{1}), Verdict::kNew);
  EXPECT_EQ(windows.Classify(kSession, UpdateSeq{257}, UpdateSeq{1}), Verdict::kTooNew);
  EXPECT_EQ(windows.Classify(kSession, UpdateSeq{257}, UpdateSeq{2}), Verdict::kNew);
  EXPECT_EQ(windows.Classify(kSession, UpdateSeq{1}, UpdateSeq{2}), Verdict::kApplied);
}

TEST(UnitWindowsIsApplied, TooManyInFlightIsResourceExhausted) {
  UnitWindows windows;
  windows.Record(kSession, UpdateSeq{9}, UpdateSeq{9});
  EXPECT_THAT(windows.IsApplied(kSession, UpdateSeq{9}, UpdateSeq{9}), IsOkAndHolds(true));
  EXPECT_THAT(windows.IsApplied(kSession, UpdateSeq{10}, UpdateSeq{9}), IsOkAndHolds(false));
  EXPECT_THAT(windows.IsApplied(kSession, UpdateSeq{300}, UpdateSeq{10}).status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       ::testing::HasSubstr("290 ahead of the oldest unfinished one, 10")));
}

TEST(UnitWindowsFromSessions, RestoresWhatTravelledAndRefusesDisorder) {
  UnitWindows windows;
  windows.Record(SessionId{2}, UpdateSeq{5}, UpdateSeq{4});
  windows.Record(SessionId{1}, UpdateSeq{1}, UpdateSeq{1});
  std::vector<SessionWindow> sessions(windows.sessions().begin(), windows.sessions().end());
  EXPECT_EQ(*UnitWindows::FromSessions(sessions), windows);
  std::swap(sessions[0], sessions[1]);
  EXPECT_TRUE(absl::IsInvalidArgument(UnitWindows::FromSessions(sessions).status()));
}

TEST(UnitWindowsForget, SessionStartsAnew) {
  UnitWindows windows;
  windows.Record(kSession, UpdateSeq{1}, UpdateSeq{1});
  SessionSet closed;
  closed.Insert(kSession);
  windows.Forget(closed);
  EXPECT_EQ(windows, UnitWindows());
}

// Against a set of all seqs ever recorded.
TEST(UnitWindowsModel, RandomSeqsAreAppliedOnce) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    UnitWindows windows;
    std::set<std::uint64_t> recorded;
    std::uint64_t floor = 1;
    for (int i = 0; i < 5000; ++i) {
      if (random() % 8 == 0) floor += random() % (random() % 50 == 0 ? 600 : 4);
      const std::uint64_t seq = floor + random() % 300;
      const Verdict verdict = windows.Classify(kSession, UpdateSeq{seq}, UpdateSeq{floor});
      const Verdict want = seq - floor >= 256       ? Verdict::kTooNew
                           : recorded.contains(seq) ? Verdict::kApplied
                                                    : Verdict::kNew;
      ASSERT_EQ(verdict, want) << "seq " << seq << " floor " << floor;
      if (verdict != Verdict::kNew) continue;
      windows.Record(kSession, UpdateSeq{seq}, UpdateSeq{floor});
      recorded.insert(seq);
    }
  }
}

TEST(UnitWindows, IncludeKnowsWhatEitherKnew) {
  UnitWindows a, b;
  a.Record(SessionId{1}, UpdateSeq{5}, UpdateSeq{3});
  b.Record(SessionId{2}, UpdateSeq{9}, UpdateSeq{9});
  b.Record(SessionId{1}, UpdateSeq{7}, UpdateSeq{6});
  a.Include(b);
  const auto verdict = [&](std::uint64_t session, std::uint64_t seq) {
    return a.Classify(SessionId{session}, UpdateSeq{seq}, UpdateSeq{1});
  };
  EXPECT_EQ(verdict(1, 5), UnitWindows::Verdict::kApplied);
  EXPECT_EQ(verdict(1, 6), UnitWindows::Verdict::kNew);
  EXPECT_EQ(verdict(1, 7), UnitWindows::Verdict::kApplied);
  EXPECT_EQ(verdict(2, 9), UnitWindows::Verdict::kApplied);
  EXPECT_EQ(verdict(2, 10), UnitWindows::Verdict::kNew);
  EXPECT_EQ(a.sessions().size(), 2u);
}

// Against one record that was told everything, in whatever order sessions came.
TEST(UnitWindowsModel, IncludesAsManySessionsAsThereAre) {
  std::mt19937 random(1);
  UnitWindows parts[2], all;
  for (int i = 0; i < 30'000; ++i) {
    const SessionId session{1 + random() % 10'000};
    const UpdateSeq seq{1 + random() % 100};
    parts[random() % 2].Record(session, seq, UpdateSeq{1});
    all.Record(session, seq, UpdateSeq{1});
  }
  parts[0].Include(parts[1]);
  EXPECT_EQ(parts[0], all);
}

}  // namespace
}  // namespace embla
