#include "server/zch/cuda/find.h"

#include "server/zch/cuda/probe.cuh"

namespace embla::zch::cuda {
namespace {

__global__ void __launch_bounds__(device::kThreads)
    FindKernel(DeviceGroups groups, const std::int64_t* ids, std::size_t count, std::int64_t* slots,
               std::uint8_t* outcomes) {
  ProbeIds(groups, ids, count,
           [&](std::size_t at, std::int64_t id, const FoundPlace& place, int lane) {
             const bool here = place.is_here();
             std::int64_t slot = static_cast<std::int64_t>(kNoSlot);
             if (lane >= 0) {
               slot = SlotOf(place.group_number, static_cast<unsigned>(lane));
             } else if (here) {
               slot = ReservedSlotOf(groups, id, place.group_number);
             }
             slots[at] = slot;
             outcomes[at] = static_cast<std::uint8_t>(lane >= 0 ? Outcome::kHit
                                                      : here    ? Outcome::kMissing
                                                                : Outcome::kNotHere);
           });
}

}  // namespace

int FindAsync(const DeviceGroups& groups, const std::int64_t* ids, std::size_t count,
              std::int64_t* slots, std::uint8_t* outcomes, kernels::cuda::StreamHandle stream) {
  if (count == 0) return 0;
  return device::Launch(FindKernel, GridOfProbes(count), stream, groups, ids, count, slots,
                        outcomes);
}

}  // namespace embla::zch::cuda
