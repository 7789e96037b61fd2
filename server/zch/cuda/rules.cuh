// Meanings of a table's options and a batch's clock for kernels: touches, admission, victims. The
// twin of eviction_policy.cc.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/group.cuh"
#include "server/zch/cuda/probe.cuh"
#include "server/zch/draw.h"
#include "server/zch/eviction_policy.h"
#include "server/zch/saturating.h"
#include "server/zch/slot_map_options.h"

namespace embla::zch::cuda {

struct Rules {
  Policy policy;
  bool evict_unexpired;
  std::uint32_t distance_exponent;
  std::uint32_t ttl_ticks;
  std::uint32_t lanes_for_ids;
  std::uint32_t admission_count;  // kCount.
  std::uint32_t now;
  std::uint64_t step;
  std::uint64_t seed;
  std::uint64_t draw_end;  // Draws below it are admitted; kAll: all are.
};

inline Rules RulesOf(const SlotMapOptions& options, const Clock& clock, bool admits_all) {
  // The draws d with double(d) < probability * kDrawEnd, which is exact.
  const double end = options.admission == Admission::kProbability && !admits_all
                         ? std::ceil(options.admission_probability * kDrawEnd)
                         : kDrawEnd;
  return {options.policy,
          options.evict_unexpired,
          options.distance_exponent,
          options.ttl_ticks,
          options.lanes_for_ids(),
          admits_all ? 0 : options.admission_count,
          clock.now,
          clock.step,
          options.seed,
          static_cast<std::uint64_t>(end)};
}

// Returns what one position of a batch adds to its id's word (SlotGroup::words): a count or an
// expiry.
__device__ __forceinline__ std::uint32_t TouchWord(const Rules& rules, const std::uint32_t* counts,
                                                   const std::uint32_t* ttls, std::size_t at) {
  if (rules.policy != Policy::kTtl) return counts == nullptr ? 1 : counts[at];
  const std::uint32_t ttl = ttls == nullptr ? 0 : ttls[at];
  return AddSaturating(rules.now, ttl == 0 ? rules.ttl_ticks : ttl);
}

// Two positions' words in one. 0 changes nothing.
__device__ __forceinline__ std::uint32_t JoinWords(const Rules& rules, std::uint32_t a,
                                                   std::uint32_t b) {
  if (rules.policy == Policy::kTtl) return a > b ? a : b;
  return AddSaturating(a, b);
}

// Touch (eviction_policy.h), by any number of threads at once.
__device__ __forceinline__ void TouchLane(const Rules& rules, std::byte* group, unsigned lane,
                                          std::uint32_t word) {
  device::RaiseTo(reinterpret_cast<std::uint64_t*>(LastStepAt(group, lane)), rules.step);
  if (rules.policy == Policy::kLru) return;
  auto* const stored = reinterpret_cast<std::uint32_t*>(WordAt(group, lane));
  if (rules.policy == Policy::kTtl) return device::RaiseTo(stored, word);
  // A sum that wraps is raised again by whoever wrapped it, and wraps for all who add later: in any
  // order it ends at the most there is, without a loop over ids that all add to.
  if (device::AddTo(stored, word) > ~word) device::RaiseTo(stored, ~std::uint32_t{0});
}

// A lane that may make room; lane -1: none may.
struct Victim {
  std::uint64_t last_step;
  std::uint32_t word;
  int lane;
};

// (age + 1)^exponent, as in eviction_policy.cc; at most 2^64.
__device__ __forceinline__ Uint128 DistanceOf(const Rules& rules, const Victim& victim) {
  constexpr std::uint64_t kAgeMax = 0xffffffff;
  const std::uint64_t age = rules.step - victim.last_step;
  const Uint128 distance = (age < kAgeMax ? age : kAgeMax) + Uint128{1};
  return rules.distance_exponent == 1 ? distance : distance * distance;
}

// A total order, so that any order of comparing finds the same victim.
__device__ __forceinline__ bool GoesBefore(const Rules& rules, const Victim& a, const Victim& b) {
  if (a.lane < 0 || b.lane < 0) return a.lane >= 0;
  if (rules.policy == Policy::kDistanceLfu) {
    const Uint128 left = Uint128{a.word} * DistanceOf(rules, b);
    const Uint128 right = Uint128{b.word} * DistanceOf(rules, a);
    if (left != right) return left < right;
  } else if (rules.policy != Policy::kLru && a.word != b.word) {
    return a.word < b.word;
  }
  if (a.last_step != b.last_step) return a.last_step < b.last_step;
  return a.lane < b.lane;
}

// The first of the warp's to go, to all its lanes. All call it.
__device__ __forceinline__ Victim FirstToGo(const Rules& rules, const device::Group& warp,
                                            Victim victim) {
#pragma unroll 1
  for (unsigned half = device::kWarp / 2; half > 0; half /= 2) {
    const unsigned other_lane = warp.lane ^ half;
    const Victim other{device::FromLane(warp, victim.last_step, other_lane),
                       device::FromLane(warp, victim.word, other_lane),
                       device::FromLane(warp, victim.lane, other_lane)};
    if (GoesBefore(rules, other, victim)) victim = other;
  }
  return victim;
}

}  // namespace embla::zch::cuda
