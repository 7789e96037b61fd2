// Finds how far ahead a kernel prefetches rows best, from the batches that it executes anyway.
//
// The best distance depends on the machine (line fill buffers, latency), on the row size and on
// what the caches hold: on one machine 8 rows of 256 bytes win, on another 32 are twice as fast.
// Each distance keeps its least time per row, which creeps up until it is measured again, so that a
// disturbed measurement does no harm and an old one does not last. Batches use the fastest
// distance; one in kTrialEvery tries the next other one.
//
// Results never depend on it. Thread safety: every method may be called from any thread; a race
// costs a measurement.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "kernels/row_kernels.h"

namespace embla {

class PrefetchTuner {
 public:
  static constexpr std::array<std::uint32_t, 8> kDistances = {0, 4, 8, 16, 24, 32, 48, 64};
  static constexpr std::uint32_t kTrialEvery = 64;
  // Fewest rows of a batch that is timed: smaller ones tell nothing.
  static constexpr std::size_t kRowsMin = 128;

  // Calls work(tuning) for a batch of `rows` rows.
  template <typename Work>
  void Run(std::size_t rows, const Work& work) {
    if (rows < kRowsMin) return work(kernels::PrefetchTuning{best()});
    const std::size_t choice = Choose();
    const auto begin = std::chrono::steady_clock::now();
    work(kernels::PrefetchTuning{kDistances[choice]});
    Record(choice, rows, std::chrono::steady_clock::now() - begin);
  }

  // The distance that is fastest so far; kAuto before the first measurements.
  std::uint32_t best() const;

  // Chooses the one of kDistances that the next batch uses.
  std::size_t Choose();
  void Record(std::size_t choice, std::size_t rows, std::chrono::nanoseconds elapsed);

 private:
  // Every distance is tried so often before the fastest is used.
  static constexpr std::uint32_t kFirstTrials = 4;

  // All relaxed: nothing else hangs on them.
  std::atomic<std::uint32_t> batches_ = 0;
  std::array<std::atomic<std::uint64_t>, kDistances.size()> picoseconds_ =
      {};  // Per row; 0: unknown.
};

}  // namespace embla
