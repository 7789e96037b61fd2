// Two kernels around a sort. TouchKernel finds and touches; its misses get their group's number for
// a key, all others one past the last, so that sorting makes neighbours of a group's misses and
// ends with what needs nothing. InsertKernel gives a warp each group (insertion.cuh). With
// admission by count it is InsertCountedKernel, which gives a warp each bucket, group after group:
// when too many ids of a bucket wait, all of their counts are halved, and what is later must see
// that.
//
// Nothing depends on timing: touches commute, and a group or bucket has one warp. Covered by
// server/zch/cuda/apply_test.cc.
#include "server/zch/cuda/apply.h"

#include <algorithm>

#include "kernels/cuda/sort.h"
#include "kernels/cuda/workspace.h"
#include "server/zch/cuda/insertion.cuh"
#include "server/zch/cuda/probe.cuh"
#include "server/zch/cuda/rules.cuh"

namespace embla::zch::cuda {
namespace {

constexpr std::size_t kIdsMax = 0x7fffffff;

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
               TouchLane(rules, GroupAt(groups, place.group_number), found,
                         TouchWord(rules, batch.counts, batch.ttls, at));
               answer.slots[at] = SlotOf(place.group_number, found);
               answer.outcomes[at] = ByteOf(Outcome::kHit);
             } else if (!place.is_here()) {
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
    NobodyWaits nobody;
    GroupInsertion<NobodyWaits>(warp, rules, groups, batch, answer, scratch, i, nobody).Run();
  }
}

// The same, by bucket.
__global__ void __launch_bounds__(device::kThreads)
    InsertCountedKernel(Rules rules, DeviceGroups groups, DeviceBatch batch, DeviceAnswer answer,
                        Scratch scratch) {
  const device::Group warp = device::GroupOfThread(5);
  const auto no_group = static_cast<std::uint32_t>(groups.count());
  const std::uint32_t* const keys = scratch.sorted_keys;
  for (std::size_t i = warp.first; i < batch.count; i += warp.count) {
    if (keys[i] == no_group) break;
    const std::uint32_t bucket = keys[i] / groups.groups_per_bucket;
    if (i > 0 && keys[i - 1] / groups.groups_per_bucket == bucket) continue;
    WaitingIds waiting(warp, groups, bucket);
    for (std::size_t at = i;
         at < batch.count && keys[at] != no_group && keys[at] / groups.groups_per_bucket == bucket;
         ++at) {
      if (at > i && keys[at - 1] == keys[at]) continue;
      GroupInsertion<WaitingIds>(warp, rules, groups, batch, answer, scratch, at, waiting).Run();
    }
    waiting.Save();
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
                const DeviceAnswer& answer, const Scratch& scratch, bool counted,
                kernels::cuda::StreamHandle stream) {
  const kernels::cuda::SortPairs pairs{
      scratch.keys,        scratch.positions,
      scratch.sorted_keys, scratch.sorted_positions,
      batch.count,         static_cast<std::uint32_t>(groups.count())};
  if (const int error = kernels::cuda::SortAsync(pairs, scratch.sorting, stream); error != 0) {
    return error;
  }
  const std::size_t warps = std::min(batch.count, device::kWarpsWanted);
  if (const int error = device::Launch(counted ? InsertCountedKernel : InsertKernel,
                                       device::GridOfGroups(warps, {5, 1}), stream, rules, groups,
                                       batch, answer, scratch);
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
  const bool counted = options.admission == Admission::kCount;
  if ((counted && groups.candidates.blocks == nullptr) || groups.count() >= 0xffffffff ||
      batch.count > kIdsMax || !parts.fits()) {
    return device::kInvalidValue;
  }
  scratch.sorting = parts.Rest();
  const Rules rules = RulesOf(options, batch.clock, batch.admits_all);
  if (batch.count > 0) {
    const int error = device::Launch(TouchKernel, GridOfProbes(batch.count), stream, rules, groups,
                                     batch, answer, scratch);
    if (error != 0) return error;
  }
  return InsertAsync(rules, groups, batch, answer, scratch, counted, stream);
}

}  // namespace embla::zch::cuda
