#include "server/zch/eviction_policy.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <limits>

#include "core/plan/id_place.h"
#include "server/zch/saturating.h"

namespace embla::zch {
namespace {

// Relaxed everywhere: the values are only read after the threads of the batch have been joined.
template <typename T>
void RaiseTo(T& stored, T value) {
  std::atomic_ref<T> atomic(stored);
  T seen = atomic.load(std::memory_order_relaxed);
  while (seen < value && !atomic.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

void AddTo(std::uint32_t& stored, std::uint32_t count) {
  std::atomic_ref<std::uint32_t> atomic(stored);
  std::uint32_t seen = atomic.load(std::memory_order_relaxed);
  while (
      !atomic.compare_exchange_weak(seen, AddSaturating(seen, count), std::memory_order_relaxed)) {
  }
}

// The least occupied lane that was last touched before `step`, or -1. `less(a, b)` orders lanes;
// equal ones: the older, then the lower.
template <typename Less>
int LeastLane(const SlotGroup& group, std::uint64_t step, const Less& less) {
  int least = -1;
  for (std::uint64_t lanes = ~EmptyLanes(group); lanes != 0; lanes &= lanes - 1) {
    const int lane = std::countr_zero(lanes);
    if (group.last_steps[lane] >= step) continue;
    if (least < 0 || less(lane, least) ||
        (!less(least, lane) && group.last_steps[lane] < group.last_steps[least])) {
      least = lane;
    }
  }
  return least;
}

// The minimum first, without branches, then the lane that has it. Four minima at a time, so that
// they do not wait for each other.
int LeastRecentLane(const SlotGroup& group, std::uint64_t lanes, std::uint64_t step) {
  constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t least[4] = {kNever, kNever, kNever, kNever};
  for (std::uint32_t lane = 0; lane < kLanes; lane += 4) {
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint64_t last =
          (lanes >> (lane + i) & 1) != 0 ? group.last_steps[lane + i] : kNever;
      least[i] = last < least[i] ? last : least[i];
    }
  }
  const std::uint64_t oldest = *std::min_element(std::begin(least), std::end(least));
  if (oldest >= step) return -1;
  for (; lanes != 0; lanes &= lanes - 1) {
    const int lane = std::countr_zero(lanes);
    if (group.last_steps[lane] == oldest) return lane;
  }
  return -1;
}

// (age + 1)^exponent; at most 2^64.
Uint128 Distance(const SlotGroup& group, int lane, std::uint64_t step, std::uint32_t exponent) {
  constexpr std::uint64_t kAgeMax = std::numeric_limits<std::uint32_t>::max();
  const std::uint64_t age = step - group.last_steps[lane];
  const Uint128 distance = (age < kAgeMax ? age : kAgeMax) + Uint128{1};
  return exponent == 1 ? distance : distance * distance;
}

// Cross-multiplied, so that no rounding decides: 32 + 64 bits at most.
int LeastDenseLane(const SlotGroup& group, std::uint64_t step, std::uint32_t exponent) {
  return LeastLane(group, step, [&](int a, int b) {
    return Uint128{group.words[a]} * Distance(group, b, step, exponent) <
           Uint128{group.words[b]} * Distance(group, a, step, exponent);
  });
}

}  // namespace

void Touch(Policy policy, SlotGroup& group, int lane, std::uint64_t step, std::uint32_t word) {
  RaiseTo(group.last_steps[lane], step);
  switch (policy) {
    case Policy::kLru:
      return;
    case Policy::kLfu:
    case Policy::kDistanceLfu:
      return AddTo(group.words[lane], word);
    case Policy::kTtl:
      return RaiseTo(group.words[lane], word);
  }
}

void FillLane(Policy policy, SlotGroup& group, int lane, const Resident& resident) {
  group.tags[lane] = resident.tag;
  group.ids[lane] = resident.id;
  group.last_steps[lane] = resident.step;
  group.words[lane] = policy == Policy::kLru ? 0 : resident.word;
}

int VictimOf(const SlotMapOptions& options, const SlotGroup& group, const Clock& clock) {
  const auto smaller_word = [&group](int a, int b) { return group.words[a] < group.words[b]; };
  switch (options.policy) {
    case Policy::kLru:
      return LeastRecentLane(group, ~EmptyLanes(group), clock.step);
    case Policy::kLfu:
      return LeastLane(group, clock.step, smaller_word);
    case Policy::kDistanceLfu:
      return LeastDenseLane(group, clock.step, options.distance_exponent);
    case Policy::kTtl: {
      const int lane = LeastLane(group, clock.step, smaller_word);
      const bool may_go = lane >= 0 && (group.words[lane] <= clock.now || options.evict_unexpired);
      return may_go ? lane : -1;
    }
  }
  return -1;
}

}  // namespace embla::zch
