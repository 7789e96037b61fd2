// Two kernels around a sort. TouchKernel finds and touches; its misses get their group's number for
// a key, all others one past the last, so that sorting makes neighbours of a group's misses and
// ends with what needs nothing. InsertKernel gives a warp each group: it takes the misses' ids from
// the least to the greatest, with two of the group's 64 lanes in each thread's registers, until
// they are done or no lane may go. An insertion uses up a lane that no other one of the batch may
// take, so a warp goes over its misses 65 times at most, however many there are.
//
// Nothing depends on timing: touches commute, and a group has one warp. Covered by
// server/zch/cuda/apply_test.cc.
#include "server/zch/cuda/apply.h"

#include <algorithm>

#include "kernels/cuda/sort.h"
#include "kernels/cuda/workspace.h"
#include "server/zch/cuda/probe.cuh"
#include "server/zch/cuda/rules.cuh"

namespace embla::zch::cuda {
namespace {

constexpr std::size_t kIdsMax = 0x7fffffff;

__device__ __forceinline__ std::uint8_t ByteOf(Outcome outcome) {
  return static_cast<std::uint8_t>(outcome);
}

// What lies in the workspace.
struct Scratch {
  // By position; then, sorted by group, stably.
  std::uint32_t* keys;
  std::uint32_t* positions;
  std::uint32_t* sorted_keys;
  std::uint32_t* sorted_positions;
  // A group's evictions from where its misses begin, and whether there is one.
  DeviceEviction* evictions;
  std::uint8_t* evicted;
  kernels::cuda::Workspace sorting;  // And selecting.
};

// All but `sorting`, which is the rest.
Scratch LayOut(std::size_t count, kernels::cuda::WorkspaceParts& parts) {
  Scratch scratch;
  scratch.keys = parts.Take<std::uint32_t>(count);
  scratch.positions = parts.Take<std::uint32_t>(count);
  scratch.sorted_keys = parts.Take<std::uint32_t>(count);
  scratch.sorted_positions = parts.Take<std::uint32_t>(count);
  scratch.evictions = parts.Take<DeviceEviction>(count);
  scratch.evicted = parts.Take<std::uint8_t>(count);
  return scratch;
}

__global__ void __launch_bounds__(device::kThreads)
    TouchKernel(Rules rules, DeviceGroups groups, DeviceBatch batch, DeviceAnswer answer,
                Scratch scratch) {
  const auto no_group = static_cast<std::uint32_t>(groups.count());
  ProbeIds(groups, batch.ids, batch.count,
           [&](std::size_t at, std::int64_t id, const FoundPlace& place, int lane) {
             std::uint32_t key = no_group;
             if (lane >= 0) {
               const auto found = static_cast<unsigned>(lane);
               TouchLane(rules, place.group, found, TouchWord(rules, batch.counts, batch.ttls, at));
               answer.slots[at] = SlotOf(place.group_number, found);
               answer.outcomes[at] = ByteOf(Outcome::kHit);
             } else if (place.group == nullptr) {
               answer.slots[at] = static_cast<std::int64_t>(kNoSlot);
               answer.outcomes[at] = ByteOf(Outcome::kNotHere);
             } else if (DrawOf(RowId{id}, rules.step, rules.seed) >= rules.draw_end) {
               answer.slots[at] = ReservedSlotOf(groups, id, place.group_number);
               answer.outcomes[at] = ByteOf(Outcome::kNotAdmitted);
             } else {
               key = static_cast<std::uint32_t>(place.group_number);
             }
             scratch.keys[at] = key;
             scratch.positions[at] = static_cast<std::uint32_t>(at);
             scratch.evicted[at] = 0;
           });
}

// Ids as unsigned numbers of the same order.
__device__ __forceinline__ std::uint64_t OrderOf(std::int64_t id) {
  return static_cast<std::uint64_t>(id) ^ std::uint64_t{1} << 63;
}
__device__ __forceinline__ std::int64_t IdOf(std::uint64_t order) {
  return static_cast<std::int64_t>(order ^ std::uint64_t{1} << 63);
}

// One group's misses, in the hands of a warp.
class GroupInsertion {
 public:
  __device__ GroupInsertion(const device::Group& warp, const Rules& rules,
                            const DeviceGroups& groups, const DeviceBatch& batch,
                            const DeviceAnswer& answer, const Scratch& scratch, std::size_t begin)
      : warp_(warp),
        rules_(rules),
        groups_(groups),
        batch_(batch),
        answer_(answer),
        scratch_(scratch),
        begin_(begin),
        number_(scratch.sorted_keys[begin]),
        group_(groups.groups + std::size_t{number_} * sizeof(SlotGroup)) {
    low_ = ReadLane(warp.lane);
    high_ = ReadLane(warp.lane + device::kWarp);
  }

  __device__ __forceinline__ void Run() {
    std::uint32_t evictions = 0;
    std::uint32_t collisions = 0;
    Newcomer id{};
    while (TakeNext(id)) {
      const int lane = ChooseLane();
      if (lane < 0) {
        RefuseFrom(id);
        break;
      }
      const Place place =
          PlaceOf(RowId{IdOf(id.order)}, groups_.buckets, groups_.groups_per_bucket);
      collisions += TagAt(place.home_lane) != 0 ? 1 : 0;
      if (TagAt(static_cast<unsigned>(lane)) != 0) {
        Evict(static_cast<unsigned>(lane), begin_ + evictions++);
      }
      Fill(static_cast<unsigned>(lane), place.tag, id);
      Answer(id, SlotOf(number_, static_cast<unsigned>(lane)));
    }
    if (warp_.lane == 0 && collisions != 0) device::AddTo(answer_.collisions_avoided, collisions);
  }

 private:
  // An id that is to get a slot.
  struct Newcomer {
    bool is_first = true;  // No id of the group came before it.
    std::uint64_t order;
    std::uint32_t word;   // Of all its positions.
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
  const std::size_t begin_;  // In the sorted positions.
  const std::uint32_t number_;
  std::byte* const group_;
  InHand low_;   // Lane warp_.lane,
  InHand high_;  // and the one 32 above.
};

// A warp looks at every warp.count-th sorted position, until they need nothing: few misses are
// spread over all warps.
__global__ void __launch_bounds__(device::kThreads)
    InsertKernel(Rules rules, DeviceGroups groups, DeviceBatch batch, DeviceAnswer answer,
                 Scratch scratch) {
  const device::Group warp = device::GroupOfThread(5);
  const auto no_group = static_cast<std::uint32_t>(groups.count());
  for (std::size_t i = warp.first; i < batch.count; i += warp.count) {
    const std::uint32_t key = scratch.sorted_keys[i];
    if (key == no_group) break;
    if (i > 0 && scratch.sorted_keys[i - 1] == key) continue;
    GroupInsertion(warp, rules, groups, batch, answer, scratch, i).Run();
  }
}

// answer.evictions[i] = scratch.evictions[indices[i]].
__global__ void __launch_bounds__(device::kThreads)
    ListEvictionsKernel(Scratch scratch, const std::uint32_t* indices, DeviceAnswer answer) {
  const device::Group thread = device::GroupOfThread(0);
  const std::uint32_t count = *answer.eviction_count;
  for (std::size_t i = thread.first; i < count; i += thread.count) {
    answer.evictions[i] = scratch.evictions[indices[i]];
  }
}

int InsertAsync(const Rules& rules, const DeviceGroups& groups, const DeviceBatch& batch,
                const DeviceAnswer& answer, const Scratch& scratch,
                kernels::cuda::StreamHandle stream) {
  const kernels::cuda::SortPairs pairs{
      scratch.keys,        scratch.positions,
      scratch.sorted_keys, scratch.sorted_positions,
      batch.count,         static_cast<std::uint32_t>(groups.count())};
  if (const int error = kernels::cuda::SortAsync(pairs, scratch.sorting, stream); error != 0) {
    return error;
  }
  const std::size_t warps = std::min(batch.count, device::kWarpsWanted);
  if (const int error = device::Launch(InsertKernel, device::GridOfGroups(warps, {5, 1}), stream,
                                       rules, groups, batch, answer, scratch);
      error != 0) {
    return error;
  }
  // The keys have served.
  std::uint32_t* const indices = scratch.keys;
  if (const int error = kernels::cuda::FlaggedAsync(scratch.evicted, batch.count, indices,
                                                    answer.eviction_count, scratch.sorting, stream);
      error != 0) {
    return error;
  }
  return device::Launch(ListEvictionsKernel, device::GridOfGroups(batch.count, {0, 1}), stream,
                        scratch, static_cast<const std::uint32_t*>(indices), answer);
}

}  // namespace

int ApplyBytes(std::size_t count, std::size_t* bytes) {
  kernels::cuda::WorkspaceParts parts({});
  LayOut(count, parts);
  std::size_t sort_bytes = 0;
  std::size_t select_bytes = 0;
  if (const int error = kernels::cuda::SortBytes(count, &sort_bytes); error != 0) return error;
  if (const int error = kernels::cuda::FlaggedBytes(count, &select_bytes); error != 0) return error;
  *bytes = parts.used() + std::max(sort_bytes, select_bytes);
  return 0;
}

int ApplyAsync(const SlotMapOptions& options, const DeviceGroups& groups, const DeviceBatch& batch,
               const DeviceAnswer& answer, kernels::cuda::Workspace workspace,
               kernels::cuda::StreamHandle stream) {
  kernels::cuda::WorkspaceParts parts(workspace);
  Scratch scratch = LayOut(batch.count, parts);
  if (options.admission == Admission::kCount || groups.count() >= 0xffffffff ||
      batch.count > kIdsMax || !parts.fits()) {
    return device::kInvalidValue;
  }
  scratch.sorting = parts.Rest();
  const Rules rules = RulesOf(options, batch.clock);
  if (batch.count > 0) {
    const int error = device::Launch(TouchKernel, GridOfProbes(batch.count), stream, rules, groups,
                                     batch, answer, scratch);
    if (error != 0) return error;
  }
  return InsertAsync(rules, groups, batch, answer, scratch, stream);
}

}  // namespace embla::zch::cuda
