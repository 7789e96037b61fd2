#include "server/zch/eviction_policy.h"

#include <algorithm>
#include <atomic>
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

// Without a branch, which would be mispredicted at every second new minimum.
std::uint64_t Smaller(std::uint64_t a, std::uint64_t b) {
  return b ^ ((a ^ b) & (std::uint64_t{0} - static_cast<std::uint64_t>(a < b)));
}

// The minimum first, then the lane that has it. Four minima at a time, so that they do not wait
// for each other. An empty lane counts as never to go.
int LeastRecentLane(const SlotGroup& group, std::uint64_t lanes, std::uint64_t step) {
  constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  const auto step_of = [&](std::uint32_t lane) {
    return group.last_steps[lane] | ((lanes >> lane & 1) - 1);
  };
  std::uint64_t least_0 = kNever, least_1 = kNever, least_2 = kNever, least_3 = kNever;
  for (std::uint32_t lane = 0; lane < kLanes; lane += 4) {
    least_0 = Smaller(step_of(lane), least_0);
    least_1 = Smaller(step_of(lane + 1), least_1);
    least_2 = Smaller(step_of(lane + 2), least_2);
    least_3 = Smaller(step_of(lane + 3), least_3);
  }
  const std::uint64_t oldest = Smaller(Smaller(least_0, least_1), Smaller(least_2, least_3));
  if (oldest >= step) return -1;
  std::uint64_t oldest_lanes = 0;
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    oldest_lanes |= std::uint64_t{step_of(lane) == oldest} << lane;
  }
  return std::countr_zero(oldest_lanes);
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
  if (policy != Policy::kLru) group.words[lane] = resident.word;
}

// The words of kLru are 0 as they are: their cache line is not touched.
void ClearLane(Policy policy, SlotGroup& group, int lane) {
  group.tags[lane] = 0;
  group.ids[lane] = 0;
  group.last_steps[lane] = 0;
  if (policy != Policy::kLru) group.words[lane] = 0;
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
