#include "server/migration/session_window.h"

#include <algorithm>
#include <random>
#include <set>

#include "core/base/testing/seeds.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using Verdict = SessionWindow::Verdict;

TEST(SessionWindowClassify, EverySeqIsNewThenAppliedThenForgotten) {
  SessionWindow window;
  EXPECT_EQ(window.Classify(UpdateSeq{1}), Verdict::kNew);
  window.Record(UpdateSeq{1});
  EXPECT_EQ(window.Classify(UpdateSeq{1}), Verdict::kApplied);
  EXPECT_EQ(window.Classify(UpdateSeq{256}), Verdict::kNew);
  EXPECT_EQ(window.Classify(UpdateSeq{257}), Verdict::kTooNew);
  window.RaiseFloor(UpdateSeq{2});
  EXPECT_EQ(window.Classify(UpdateSeq{1}), Verdict::kApplied);
  EXPECT_EQ(window.Classify(UpdateSeq{257}), Verdict::kNew);  // Seq 1's bit was cleared.
}

TEST(SessionWindowClassify, AgreesWithASetOfAppliedSeqs) {
  const std::uint32_t seed = embla::testing::TestSeed();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    SessionWindow window;
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
      const Verdict expected = seq < floor || applied.contains(seq)  ? Verdict::kApplied
                               : seq >= floor + SessionWindow::kSize ? Verdict::kTooNew
                                                                     : Verdict::kNew;
      ASSERT_EQ(window.Classify(UpdateSeq{seq}), expected) << "seq " << seq << " floor " << floor;
      if (expected == Verdict::kNew && random() % 2 == 0) {
        window.Record(UpdateSeq{seq});
        applied.insert(seq);
      }
    }
  }
}

}  // namespace
}  // namespace embla
