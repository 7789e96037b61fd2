// A thread has a slot: it is marked if its id goes, the marked ones are listed in their order, and
// those on the list are emptied. Covered by server/zch/cuda/apply_test.cc.
#include "server/zch/cuda/sweep.h"

#include "kernels/cuda/sort.h"
#include "kernels/cuda/workspace.h"
#include "server/zch/cuda/probe.cuh"

namespace embla::zch::cuda {
namespace {

constexpr std::uint64_t kSlotsMax = 0x7fffffff;

struct SweepScratch {
  std::uint8_t* marks;     // By slot of the sweep.
  std::uint32_t* indices;  // Positions of the marked slots.
  kernels::cuda::Workspace selecting;
};

// All but `selecting`, which is the rest.
SweepScratch LayOutSweep(std::size_t slots, kernels::cuda::WorkspaceParts& parts) {
  SweepScratch scratch;
  scratch.marks = parts.Take<std::uint8_t>(slots);
  scratch.indices = parts.Take<std::uint32_t>(slots);
  return scratch;
}

device::Grid GridOfSlots(std::size_t slots) { return device::GridOfGroups(slots, {0, 1}); }

// Slot `index` of the sweep's: of the group with this number.
__device__ __forceinline__ std::uint64_t GroupNumberOf(const DeviceGroups& groups,
                                                       std::uint32_t bucket_begin,
                                                       std::size_t index) {
  return std::uint64_t{bucket_begin} * groups.groups_per_bucket + index / kLanes;
}

__global__ void __launch_bounds__(device::kThreads)
    MarkSlotsKernel(DeviceGroups groups, DeviceSweep sweep, std::size_t slots,
                    std::uint8_t* marks) {
  const device::Group thread = device::GroupOfThread(0);
  for (std::size_t i = thread.first; i < slots; i += thread.count) {
    const std::uint64_t number = GroupNumberOf(groups, sweep.bucket_begin, i);
    bool goes = groups.held[number / groups.groups_per_bucket] != 0;
    if (goes) {
      std::byte* const group = GroupAt(groups, number);
      const auto lane = static_cast<unsigned>(i % kLanes);
      goes = device::Load<unsigned char>(group + lane) != 0 &&
             (sweep.reason == EvictionReason::kIdle
                  ? device::Load<unsigned long long>(LastStepAt(group, lane)) < sweep.before_step
                  : device::Load<std::uint32_t>(WordAt(group, lane)) <= sweep.now);
    }
    marks[i] = goes ? 1 : 0;
  }
}

__global__ void __launch_bounds__(device::kThreads)
    EmptySlotsKernel(DeviceGroups groups, DeviceSweep sweep, const std::uint32_t* indices,
                     DeviceSweptIds swept) {
  const device::Group thread = device::GroupOfThread(0);
  const std::uint32_t count = *swept.count;
  for (std::size_t i = thread.first; i < count; i += thread.count) {
    const std::uint64_t number = GroupNumberOf(groups, sweep.bucket_begin, indices[i]);
    std::byte* const group = GroupAt(groups, number);
    const unsigned lane = indices[i] % kLanes;
    swept.evictions[i] = {
        static_cast<std::int64_t>(device::Load<unsigned long long>(IdAt(group, lane))),
        SlotOf(number, lane), device::Load<unsigned long long>(LastStepAt(group, lane)),
        static_cast<std::uint64_t>(sweep.reason)};
    // An empty lane is 0 in every array; words of kLru are 0 as they are.
    device::Store<unsigned char>(group + lane, 0);
    device::Store<unsigned long long>(IdAt(group, lane), 0);
    device::Store<unsigned long long>(LastStepAt(group, lane), 0);
    device::Store<std::uint32_t>(WordAt(group, lane), 0);
  }
}

__global__ void __launch_bounds__(device::kThreads) HalveCountsKernel(DeviceGroups groups) {
  const device::Group thread = device::GroupOfThread(0);
  const std::size_t slots = groups.count() * kLanes;
  for (std::size_t i = thread.first; i < slots; i += thread.count) {
    const std::size_t number = i / kLanes;
    if (groups.held[number / groups.groups_per_bucket] == 0) continue;
    std::byte* const word = WordAt(GroupAt(groups, number), static_cast<unsigned>(i % kLanes));
    device::Store<std::uint32_t>(word, device::Load<std::uint32_t>(word) / 2);
  }
}

std::uint64_t SlotsOf(const DeviceGroups& groups, std::uint32_t buckets) {
  return std::uint64_t{buckets} * groups.groups_per_bucket * kLanes;
}

}  // namespace

int SweepBytes(const DeviceGroups& groups, std::uint32_t bucket_count, std::size_t* bytes) {
  const std::size_t slots = SlotsOf(groups, bucket_count);
  kernels::cuda::WorkspaceParts parts({});
  LayOutSweep(slots, parts);
  std::size_t select_bytes = 0;
  const int error = kernels::cuda::FlaggedBytes(slots, &select_bytes);
  *bytes = parts.used() + select_bytes;
  return error;
}

int SweepAsync(const SlotMapOptions& options, const DeviceGroups& groups, const DeviceSweep& sweep,
               const DeviceSweptIds& swept, kernels::cuda::Workspace workspace,
               kernels::cuda::StreamHandle stream) {
  const bool known =
      sweep.reason == EvictionReason::kExpired || sweep.reason == EvictionReason::kIdle;
  if (!known || sweep.bucket_begin > sweep.bucket_end || sweep.bucket_end > groups.buckets) {
    return device::kInvalidValue;
  }
  // Ids expire under the policy kTtl only.
  const bool nothing = sweep.reason == EvictionReason::kExpired && options.policy != Policy::kTtl;
  const std::uint64_t slots = nothing ? 0 : SlotsOf(groups, sweep.bucket_end - sweep.bucket_begin);
  if (slots > kSlotsMax) return device::kInvalidValue;
  kernels::cuda::WorkspaceParts parts(workspace);
  SweepScratch scratch = LayOutSweep(slots, parts);
  if (!parts.fits()) return device::kInvalidValue;
  scratch.selecting = parts.Rest();
  if (const int error = device::Launch(MarkSlotsKernel, GridOfSlots(slots), stream, groups, sweep,
                                       static_cast<std::size_t>(slots), scratch.marks);
      error != 0) {
    return error;
  }
  if (const int error = kernels::cuda::FlaggedAsync(scratch.marks, slots, scratch.indices,
                                                    swept.count, scratch.selecting, stream);
      error != 0) {
    return error;
  }
  return device::Launch(EmptySlotsKernel, GridOfSlots(slots), stream, groups, sweep,
                        static_cast<const std::uint32_t*>(scratch.indices), swept);
}

int HalveCountsAsync(const SlotMapOptions& options, const DeviceGroups& groups,
                     kernels::cuda::StreamHandle stream) {
  if (options.policy != Policy::kLfu && options.policy != Policy::kDistanceLfu) return 0;
  return device::Launch(HalveCountsKernel, GridOfSlots(groups.count() * kLanes), stream, groups);
}

}  // namespace embla::zch::cuda
