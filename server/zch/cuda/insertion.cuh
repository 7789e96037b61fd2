// The insertion of a group's misses by a warp: it takes the misses' ids from the least to the
// greatest, with two of the group's 64 lanes in each thread's registers, until they are done or no
// lane may go. An insertion uses up a lane that no other one of the batch may take, so a warp goes
// over its misses 65 times at most, however many there are. With admission by count it goes over
// them once for each id, since those that are refused are counted one after the other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/group.cuh"
#include "kernels/cuda/launch.h"
#include "server/zch/cuda/apply.h"
#include "server/zch/cuda/probe.cuh"
#include "server/zch/cuda/rules.cuh"
#include "server/zch/cuda/waiting_ids.cuh"

namespace embla::zch::cuda {

__device__ __forceinline__ std::uint8_t ByteOf(Outcome outcome) {
  return static_cast<std::uint8_t>(outcome);
}

// Layout of the workspace.
struct Scratch {
  // By position; then, sorted by group, stably.
  std::uint32_t* keys;
  std::uint32_t* positions;
  std::uint32_t* sorted_keys;
  std::uint32_t* sorted_positions;
  // A group's evictions from where its misses begin, and whether there is one.
  DeviceEviction* evictions;
  std::uint8_t* evicted;
  kernels::cuda::Workspace sorting;  // Scratch memory for sorting and selecting.
};

// Ids as unsigned numbers of the same order.
__device__ __forceinline__ std::uint64_t OrderOf(std::int64_t id) {
  return static_cast<std::uint64_t>(id) ^ std::uint64_t{1} << 63;
}
__device__ __forceinline__ std::int64_t IdOf(std::uint64_t order) {
  return static_cast<std::int64_t>(order ^ std::uint64_t{1} << 63);
}

// In place of WaitingIds: admission is no matter of counts.
struct NobodyWaits {
  static constexpr bool kCounts = false;
};

// One group's misses, in the hands of a warp. `Waiting` is WaitingIds, of the group's bucket, or
// NobodyWaits.
template <class Waiting>
class GroupInsertion {
 public:
  __device__ GroupInsertion(const device::Group& warp, const Rules& rules,
                            const DeviceGroups& groups, const DeviceBatch& batch,
                            const DeviceAnswer& answer, const Scratch& scratch, std::size_t begin,
                            Waiting& waiting)
      : warp_(warp),
        rules_(rules),
        groups_(groups),
        batch_(batch),
        answer_(answer),
        scratch_(scratch),
        waiting_(waiting),
        begin_(begin),
        number_(scratch.sorted_keys[begin]),
        group_(GroupAt(groups, number_)) {
    low_ = ReadLane(warp.lane);
    high_ = ReadLane(warp.lane + device::kWarp);
  }

  __device__ __forceinline__ void Run() {
    std::uint32_t evictions = 0;
    std::uint32_t collisions = 0;
    Newcomer id{};
    while (TakeNext(id)) {
      if constexpr (Waiting::kCounts) {
        if (!IsAdmitted(id)) continue;
      }
      const int lane = ChooseLane();
      if (lane < 0) {
        if constexpr (Waiting::kCounts) {
          Refuse(id, Outcome::kFull);
          continue;
        } else {
          RefuseFrom(id);
          break;
        }
      }
      const Place place =
          PlaceOf(RowId{IdOf(id.order)}, groups_.buckets, groups_.groups_per_bucket);
      collisions += TagAt(place.home_lane) != 0 ? 1 : 0;
      if (TagAt(static_cast<unsigned>(lane)) != 0) {
        Evict(static_cast<unsigned>(lane), begin_ + evictions++);
      }
      Fill(static_cast<unsigned>(lane), place.tag, id);
      Answer(id, SlotOf(number_, static_cast<unsigned>(lane)));
      if constexpr (Waiting::kCounts) waiting_.Forget(IdOf(id.order));
    }
    if (warp_.lane == 0 && collisions != 0) {
      device::AddTo(answer_.collisions_avoided, std::uint64_t{collisions});
    }
  }

 private:
  // An id that is to get a slot.
  struct Newcomer {
    bool is_first = true;  // No id of the group came before it.
    std::uint64_t order;
    std::uint32_t word;   // Sum over its positions.
    std::uint32_t index;  // Its first one, in the sorted positions.
  };

  // Calls visit(i, position) for this thread's share of the misses.
  template <class Visit>
  __device__ __forceinline__ void ForEachMiss(const Visit& visit) const {
    for (std::size_t i = begin_ + warp_.lane;
         i < batch_.count && scratch_.sorted_keys[i] == number_; i += device::kWarp) {
      visit(i, scratch_.sorted_positions[i]);
    }
  }

  // The id after `id`, in its place; false: there is none.
  __device__ __forceinline__ bool TakeNext(Newcomer& id) const {
    bool found = false;
    std::uint64_t least = ~std::uint64_t{0};
    std::uint32_t word = 0;
    std::uint32_t index = 0;
    ForEachMiss([&](std::size_t i, std::uint32_t position) {
      const std::uint64_t order = OrderOf(batch_.ids[position]);
      if (!id.is_first && order <= id.order) return;
      if (found && order > least) return;
      const std::uint32_t own = TouchWord(rules_, batch_.counts, batch_.ttls, position);
      const bool again = found && order == least;
      word = again ? JoinWords(rules_, word, own) : own;
      index = again ? index : static_cast<std::uint32_t>(i);
      least = order;
      found = true;
    });
    if (LanesWhere(warp_, found) == 0) return false;
    std::uint64_t order = least;
    for (unsigned half = device::kWarp / 2; half > 0; half /= 2) {
      const std::uint64_t other = device::FromLane(warp_, order, warp_.lane ^ half);
      order = order < other ? order : other;
    }
    id = {false, order, 0, ~std::uint32_t{0}};
    // The threads that have met it; nearly always one.
    for (unsigned having = LanesWhere(warp_, found && least == order); having != 0;
         having &= having - 1) {
      const unsigned lane = device::FirstBit(having) - 1;
      id.word = JoinWords(rules_, id.word, device::FromLane(warp_, word, lane));
      const std::uint32_t first = device::FromLane(warp_, index, lane);
      id.index = id.index < first ? id.index : first;
    }
    return true;
  }

  // A lane as a thread has it in registers.
  struct InHand {
    std::uint32_t tag;
    std::uint32_t word;
    std::uint64_t last_step;
  };

  __device__ __forceinline__ InHand ReadLane(unsigned lane) const {
    const bool has_words = rules_.policy != Policy::kLru;
    return {device::Load<unsigned char>(group_ + lane),
            has_words ? device::Load<std::uint32_t>(WordAt(group_, lane)) : 0u,
            device::Load<unsigned long long>(LastStepAt(group_, lane))};
  }

  // Requires: lane is one of this thread's. (No array: registers have no computed addresses.)
  __device__ __forceinline__ InHand Own(unsigned lane) const {
    if (lane < device::kWarp) return low_;
    return high_;
  }

  __device__ __forceinline__ std::uint32_t TagAt(unsigned lane) const {
    return device::FromLane(warp_, Own(lane).tag, lane % device::kWarp);
  }

  // The lowest empty lane, else the policy's victim, else -1: SlotMap::Insertion::ChooseLane.
  __device__ __forceinline__ int ChooseLane() const {
    const unsigned high_lane = warp_.lane + device::kWarp;
    unsigned empty = LanesWhere(warp_, low_.tag == 0 && warp_.lane < rules_.lanes_for_ids);
    if (empty != 0) return static_cast<int>(device::FirstBit(empty)) - 1;
    empty = LanesWhere(warp_, high_.tag == 0 && high_lane < rules_.lanes_for_ids);
    if (empty != 0) return static_cast<int>(device::kWarp + device::FirstBit(empty)) - 1;
    Victim victim = CandidateOf(low_, warp_.lane);
    const Victim other = CandidateOf(high_, high_lane);
    if (GoesBefore(rules_, other, victim)) victim = other;
    victim = FirstToGo(rules_, warp_, victim);
    const bool stays = rules_.policy == Policy::kTtl && victim.word > rules_.now;
    return stays && !rules_.evict_unexpired ? -1 : victim.lane;
  }

  __device__ __forceinline__ Victim CandidateOf(const InHand& own, unsigned lane) const {
    const bool may_go = own.tag != 0 && own.last_step < rules_.step;
    return {own.last_step, own.word, may_go ? static_cast<int>(lane) : -1};
  }

  // Puts the lane's id on record; Fill overwrites the rest.
  __device__ __forceinline__ void Evict(unsigned lane, std::size_t record) const {
    if (warp_.lane != lane % device::kWarp) return;
    const InHand own = Own(lane);
    const bool expired = rules_.policy == Policy::kTtl && own.word <= rules_.now;
    scratch_.evictions[record] = {
        static_cast<std::int64_t>(device::Load<unsigned long long>(IdAt(group_, lane))),
        SlotOf(number_, lane), own.last_step,
        static_cast<std::uint64_t>(expired ? EvictionReason::kExpired : EvictionReason::kReplaced)};
    scratch_.evicted[record] = 1;
  }

  __device__ __forceinline__ void Fill(unsigned lane, std::uint8_t tag, const Newcomer& id) {
    if (warp_.lane != lane % device::kWarp) return;
    const InHand filled{tag, id.word, rules_.step};
    if (lane < device::kWarp) {
      low_ = filled;
    } else {
      high_ = filled;
    }
    device::Store<unsigned char>(group_ + lane, tag);
    device::Store<unsigned long long>(IdAt(group_, lane),
                                      static_cast<unsigned long long>(IdOf(id.order)));
    device::Store<unsigned long long>(LastStepAt(group_, lane), rules_.step);
    if (rules_.policy != Policy::kLru) device::Store<std::uint32_t>(WordAt(group_, lane), id.word);
  }

  __device__ __forceinline__ void Answer(const Newcomer& id, std::int64_t slot) const {
    ForEachMiss([&](std::size_t i, std::uint32_t position) {
      if (OrderOf(batch_.ids[position]) != id.order) return;
      answer_.slots[position] = slot;
      answer_.outcomes[position] = ByteOf(i == id.index ? Outcome::kInserted : Outcome::kHit);
    });
  }

  // Whether the id has been seen often enough; else it waits. Under policies that count touches,
  // what was seen of it before counts too.
  __device__ __forceinline__ bool IsAdmitted(Newcomer& id) const {
    const std::int64_t number = IdOf(id.order);
    const std::uint32_t count = CountOf(id);
    const auto found = waiting_.Find(number);
    if (AddSaturating(found.count, count) < rules_.admission_count) {
      waiting_.Add(number, found, count);
      Refuse(id, Outcome::kNotAdmitted);
      return false;
    }
    if (rules_.policy != Policy::kTtl) id.word = AddSaturating(count, found.count);
    return true;
  }

  // Occurrences of the id in the batch.
  __device__ __forceinline__ std::uint32_t CountOf(const Newcomer& id) const {
    std::uint32_t count = 0;
    ForEachMiss([&](std::size_t, std::uint32_t position) {
      if (OrderOf(batch_.ids[position]) != id.order) return;
      count = AddSaturating(count, batch_.counts == nullptr ? 1 : batch_.counts[position]);
    });
    for (unsigned half = device::kWarp / 2; half > 0; half /= 2) {
      count = AddSaturating(count, device::FromLane(warp_, count, warp_.lane ^ half));
    }
    return count;
  }

  // `id` alone gets no slot.
  __device__ __forceinline__ void Refuse(const Newcomer& id, Outcome outcome) const {
    const std::int64_t slot = ReservedSlotOf(groups_, IdOf(id.order), number_);
    ForEachMiss([&](std::size_t, std::uint32_t position) {
      if (OrderOf(batch_.ids[position]) != id.order) return;
      answer_.slots[position] = slot;
      answer_.outcomes[position] = ByteOf(outcome);
    });
  }

  // `id` and all after it find the group as full.
  __device__ __forceinline__ void RefuseFrom(const Newcomer& id) const {
    ForEachMiss([&](std::size_t, std::uint32_t position) {
      const std::int64_t other = batch_.ids[position];
      if (OrderOf(other) < id.order) return;
      answer_.slots[position] = ReservedSlotOf(groups_, other, number_);
      answer_.outcomes[position] = ByteOf(Outcome::kFull);
    });
  }

  const device::Group& warp_;
  const Rules& rules_;
  const DeviceGroups& groups_;
  const DeviceBatch& batch_;
  const DeviceAnswer& answer_;
  const Scratch& scratch_;
  Waiting& waiting_;
  const std::size_t begin_;  // In the sorted positions.
  const std::uint32_t number_;
  std::byte* const group_;
  InHand low_;   // Lane warp_.lane,
  InHand high_;  // and the one 32 above.
};

}  // namespace embla::zch::cuda
