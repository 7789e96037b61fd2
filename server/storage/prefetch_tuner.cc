#include "server/storage/prefetch_tuner.h"

#include <algorithm>

namespace embla {
namespace {

constexpr std::uint32_t kCount = PrefetchTuner::kDistances.size();

}  // namespace

std::uint32_t PrefetchTuner::best() const {
  std::size_t best = kCount;
  std::uint64_t least = ~std::uint64_t{0};
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::uint64_t time = picoseconds_[i].load(std::memory_order_relaxed);
    if (time == 0 || time >= least) continue;
    best = i;
    least = time;
  }
  return best == kCount ? kernels::PrefetchTuning::kAuto : kDistances[best];
}

std::size_t PrefetchTuner::Choose() {
  const std::uint32_t batch = batches_.fetch_add(1, std::memory_order_relaxed);
  if (batch < kFirstTrials * kCount) return batch % kCount;
  if (batch % kTrialEvery == 0) return batch / kTrialEvery % kCount;
  const auto* const found = std::find(kDistances.begin(), kDistances.end(), best());
  return static_cast<std::size_t>(found - kDistances.begin()) % kCount;
}

void PrefetchTuner::Record(std::size_t choice, std::size_t rows, std::chrono::nanoseconds elapsed) {
  const auto nanoseconds = static_cast<std::uint64_t>(std::max<std::int64_t>(elapsed.count(), 0));
  const std::uint64_t time = std::max<std::uint64_t>(nanoseconds * 1000 / rows, 1);
  const std::uint64_t old = picoseconds_[choice].load(std::memory_order_relaxed);
  const std::uint64_t crept = old == 0 ? time : old + old / 64 + 1;
  picoseconds_[choice].store(std::min(time, crept), std::memory_order_relaxed);
}

}  // namespace embla
