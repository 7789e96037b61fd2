#include "server/table/replay_window.h"

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::testing::Not;

constexpr absl::Time kStart = absl::UnixEpoch();

TEST(ReplayWindowsIsApplied, SessionsDoNotMix) {
  ReplayWindows windows;
  EXPECT_FALSE(*windows.IsApplied(SessionId{1}, UpdateSeq{1}, UpdateSeq{1}, kStart));
  windows.Record(SessionId{1}, UpdateSeq{1});
  EXPECT_TRUE(*windows.IsApplied(SessionId{1}, UpdateSeq{1}, UpdateSeq{1}, kStart));
  EXPECT_FALSE(*windows.IsApplied(SessionId{2}, UpdateSeq{1}, UpdateSeq{1}, kStart));
}

TEST(ReplayWindowsIsApplied, TooManyInFlightIsResourceExhausted) {
  ReplayWindows windows;
  const absl::Status status =
      windows.IsApplied(SessionId{1}, UpdateSeq{300}, UpdateSeq{10}, kStart).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("too many updates in flight"));
}

TEST(ReplayWindowsIsApplied, OnlyAnIdleSessionMakesRoom) {
  ReplayWindows windows({.sessions_max = 2, .idle_min = absl::Minutes(10)});
  const auto use = [&](std::uint64_t session, absl::Time now) {
    return windows.IsApplied(SessionId{session}, UpdateSeq{1}, UpdateSeq{1}, now).status().code();
  };
  EXPECT_EQ(use(1, kStart), absl::StatusCode::kOk);
  EXPECT_EQ(use(2, kStart + absl::Minutes(5)), absl::StatusCode::kOk);
  EXPECT_EQ(use(3, kStart + absl::Minutes(9)), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(use(3, kStart + absl::Minutes(11)), absl::StatusCode::kOk);  // Session 1 has gone.
  EXPECT_EQ(use(2, kStart + absl::Minutes(11)), absl::StatusCode::kOk);
  EXPECT_EQ(windows.sessions(), 2u);
}

TEST(ReplayWindowsForget, MakesRoomForOtherSessions) {
  ReplayWindows windows({.sessions_max = 2});
  for (const std::uint64_t session : {1, 2}) {
    EXPECT_FALSE(*windows.IsApplied(SessionId{session}, UpdateSeq{1}, UpdateSeq{1}, kStart));
    windows.Record(SessionId{session}, UpdateSeq{1});
  }
  SessionSet closed;
  closed.Insert(SessionId{1});
  windows.Forget(closed);
  EXPECT_EQ(windows.sessions(), 1u);
  EXPECT_FALSE(*windows.IsApplied(SessionId{3}, UpdateSeq{1}, UpdateSeq{1}, kStart));
  EXPECT_TRUE(*windows.IsApplied(SessionId{2}, UpdateSeq{1}, UpdateSeq{1}, kStart));
}

TEST(ReplayWindowsImport, TakesEverySessionAlsoBeyondTheLimit) {
  constexpr std::uint64_t kSessions = 10'000;
  ReplayWindows windows({.sessions_max = 4096});
  ASSERT_FALSE(*windows.IsApplied(SessionId{kSessions + 1}, UpdateSeq{1}, UpdateSeq{1}, kStart));
  UnitWindows sent;
  for (std::uint64_t session = 1; session <= kSessions; ++session) {
    sent.Record(SessionId{session}, UpdateSeq{session + 7}, UpdateSeq{session});
  }
  windows.Import(sent, kStart);
  EXPECT_EQ(windows.Export(), sent);
  EXPECT_TRUE(*windows.IsApplied(SessionId{5000}, UpdateSeq{5007}, UpdateSeq{5000}, kStart));
  EXPECT_FALSE(*windows.IsApplied(SessionId{5000}, UpdateSeq{5008}, UpdateSeq{5000}, kStart));
}

TEST(ReplayWindowsImport, LooksAtNoSessionToMakeRoomHoweverFullTheRecordIs) {
  constexpr std::uint64_t kSessions = 4096;
  ReplayWindows windows({.sessions_max = kSessions / 4});
  UnitWindows sent;
  for (std::uint64_t session = 1; session <= kSessions; ++session) {
    for (std::uint64_t seq = 1; seq <= 256; ++seq) {
      sent.Record(SessionId{session}, UpdateSeq{seq}, UpdateSeq{1});
    }
  }
  windows.Import(sent, kStart);
  UnitWindows others;
  others.Record(SessionId{kSessions + 1}, UpdateSeq{1}, UpdateSeq{1});
  windows.Include(others, kStart);
  EXPECT_TRUE(*windows.IsApplied(SessionId{7}, UpdateSeq{256}, UpdateSeq{1}, kStart));
  EXPECT_EQ(windows.looks(), 0u);
  // One more session is one look at each, and no more.
  EXPECT_THAT(windows.IsApplied(SessionId{kSessions + 2}, UpdateSeq{1}, UpdateSeq{1}, kStart),
              Not(IsOk()));
  EXPECT_EQ(windows.looks(), kSessions + 1);
}

TEST(ReplayWindowsExport, IsWhatWasRecorded) {
  ReplayWindows windows;
  for (const std::uint64_t session : {9, 2}) {
    ASSERT_FALSE(*windows.IsApplied(SessionId{session}, UpdateSeq{5}, UpdateSeq{3}, kStart));
    windows.Record(SessionId{session}, UpdateSeq{5});
  }
  UnitWindows expected;
  expected.Record(SessionId{2}, UpdateSeq{5}, UpdateSeq{3});
  expected.Record(SessionId{9}, UpdateSeq{5}, UpdateSeq{3});
  EXPECT_EQ(windows.Export(), expected);
}

}  // namespace
}  // namespace embla
