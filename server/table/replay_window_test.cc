#include "server/table/replay_window.h"

#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using Verdict = ReplayWindow::Verdict;

TEST(ReplayWindowClassify, EverySeqIsNewThenAppliedThenForgotten) {
  ReplayWindow window;
  EXPECT_EQ(window.Classify(UpdateSeq{1}), Verdict::kNew);
  window.Record(UpdateSeq{1});
  EXPECT_EQ(window.Classify(UpdateSeq{1}), Verdict::kApplied);
  EXPECT_EQ(window.Classify(UpdateSeq{256}), Verdict::kNew);
  EXPECT_EQ(window.Classify(UpdateSeq{257}), Verdict::kTooNew);
  window.RaiseFloor(UpdateSeq{2});
  EXPECT_EQ(window.Classify(UpdateSeq{1}), Verdict::kApplied);
  EXPECT_EQ(window.Classify(UpdateSeq{257}), Verdict::kNew);  // Seq 1's bit was cleared.
}

TEST(ReplayWindowClassify, AgreesWithASetOfAppliedSeqs) {
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    ReplayWindow window;
    std::set<std::uint64_t> applied;
    std::uint64_t floor = 1;
    for (int step = 0; step < 2000; ++step) {
      if (random() % 4 == 0) {
        const std::uint64_t jump = random() % 64 == 0 ? random() % 1000 : random() % 8;
        const std::uint64_t raised = random() % 8 == 0 ? floor / 2 : floor + jump;
        window.RaiseFloor(UpdateSeq{raised});
        floor = std::max(floor, raised);
      }
      const std::uint64_t seq = floor + random() % 300 - std::min<std::uint64_t>(floor - 1, 20);
      const Verdict expected = seq < floor || applied.contains(seq) ? Verdict::kApplied
                               : seq >= floor + ReplayWindow::kSize ? Verdict::kTooNew
                                                                    : Verdict::kNew;
      ASSERT_EQ(window.Classify(UpdateSeq{seq}), expected) << "seq " << seq << " floor " << floor;
      if (expected == Verdict::kNew && random() % 2 == 0) {
        window.Record(UpdateSeq{seq});
        applied.insert(seq);
      }
    }
  }
}

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
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("too many updates in flight"));
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

}  // namespace
}  // namespace embla
