#include "server/storage/prefetch_tuner.h"

#include <gtest/gtest.h>

#include <map>

namespace embla {
namespace {

using std::chrono::nanoseconds;

constexpr std::size_t kRows = 1000;

// Nanoseconds of a batch with a distance: least at `fastest`.
nanoseconds CostOf(std::size_t choice, std::uint32_t fastest) {
  const std::int64_t distance = PrefetchTuner::kDistances[choice];
  return nanoseconds(20'000 + 500 * std::abs(distance - static_cast<std::int64_t>(fastest)));
}

// How often each distance is used over `batches`.
std::map<std::uint32_t, int> RunBatches(PrefetchTuner& tuner, std::uint32_t fastest, int batches) {
  std::map<std::uint32_t, int> used;
  for (int i = 0; i < batches; ++i) {
    const std::size_t choice = tuner.Choose();
    ++used[PrefetchTuner::kDistances[choice]];
    tuner.Record(choice, kRows, CostOf(choice, fastest));
  }
  return used;
}

TEST(PrefetchTuner, FindsTheFastestDistance) {
  for (const std::uint32_t fastest : PrefetchTuner::kDistances) {
    PrefetchTuner tuner;
    RunBatches(tuner, fastest, 100);
    EXPECT_EQ(tuner.best(), fastest);
  }
}

TEST(PrefetchTuner, UsesTheFastestButForAFewTrials) {
  PrefetchTuner tuner;
  RunBatches(tuner, 32, 100);
  std::map<std::uint32_t, int> used = RunBatches(tuner, 32, 6400);
  EXPECT_GE(used[32], 6300);
}

TEST(PrefetchTuner, ADisturbedMeasurementChangesNothing) {
  PrefetchTuner tuner;
  RunBatches(tuner, 8, 100);
  const std::size_t choice = tuner.Choose();
  tuner.Record(choice, kRows, std::chrono::milliseconds(20));
  EXPECT_EQ(tuner.best(), 8u);
}

TEST(PrefetchTuner, FollowsAChange) {
  PrefetchTuner tuner;
  RunBatches(tuner, 8, 1000);
  RunBatches(tuner, 48, 10'000);
  EXPECT_EQ(tuner.best(), 48u);
}

TEST(PrefetchTuner, SmallBatchesAreNotMeasured) {
  PrefetchTuner tuner;
  std::uint32_t distance = 0;
  for (int i = 0; i < 100; ++i) {
    tuner.Run(PrefetchTuner::kRowsMin - 1,
              [&](kernels::PrefetchTuning tuning) { distance = tuning.prefetch_rows; });
  }
  EXPECT_EQ(distance, kernels::PrefetchTuning::kAuto);
  EXPECT_EQ(tuner.best(), kernels::PrefetchTuning::kAuto);
}

}  // namespace
}  // namespace embla
