// The verbs of a simulated stream on the maps of ZCH tables' ids.
#include "core/base/check.h"
#include "server/gpu/testing/simulated_stream.h"
#include "server/zch/slot_group.h"

namespace embla::gpu {
namespace {

void ExpectDone(int error) { EMBLA_CHECK(error == 0); }

}  // namespace

const IdKernels& SimulatedStream::Ids() const {
  return device_.kernels() == nullptr ? HostIdKernels() : device_.kernels()->ids;
}

// All buckets that are here lie in one allocation, and those who wait in another.
zch::cuda::DeviceGroups SimulatedStream::Real(const zch::cuda::DeviceGroups& groups) const {
  zch::cuda::DeviceGroups real = groups;
  real.held = Real(groups.held, groups.buckets);
  const std::uint64_t first = groups.first_group / groups.groups_per_bucket;
  std::uint64_t count = 0;
  for (std::uint32_t bucket = 0; bucket < groups.buckets; ++bucket) {
    if (real.held[bucket] == 0) continue;
    EMBLA_CHECK(bucket >= first);
    count = bucket + 1 - first;
  }
  real.groups = Real(groups.groups, count * groups.groups_per_bucket * sizeof(zch::SlotGroup));
  real.candidates.blocks = Real(groups.candidates.blocks, count * groups.candidates.layout.bytes());
  return real;
}

kernels::cuda::Workspace SimulatedStream::Real(const kernels::cuda::Workspace& workspace) const {
  return {device_.Translate(workspace.base, workspace.bytes), workspace.bytes};
}

absl::StatusOr<std::size_t> SimulatedStream::ApplyIdsBytes(std::size_t count) {
  std::size_t bytes = 0;
  ExpectDone(Ids().apply_bytes(count, &bytes));
  return bytes;
}

absl::StatusOr<std::size_t> SimulatedStream::SweepIdsBytes(const zch::cuda::DeviceGroups& groups,
                                                           std::uint32_t bucket_count) {
  std::size_t bytes = 0;
  ExpectDone(Ids().sweep_bytes(groups, bucket_count, &bytes));
  return bytes;
}

absl::Status SimulatedStream::FindIds(const zch::cuda::DeviceGroups& groups,
                                      const std::int64_t* ids, std::size_t count,
                                      std::int64_t* slots, std::uint8_t* outcomes) {
  return Queue([=, this] {
    ExpectDone(Ids().find(Real(groups), Real(ids, count), count, Real(slots, count),
                          Real(outcomes, count), nullptr));
  });
}

absl::Status SimulatedStream::ApplyIds(const zch::SlotMapOptions& options,
                                       const zch::cuda::DeviceGroups& groups,
                                       const zch::cuda::DeviceBatch& batch,
                                       const zch::cuda::DeviceAnswer& answer,
                                       kernels::cuda::Workspace workspace) {
  return Queue([=, this] {
    zch::cuda::DeviceBatch real = batch;
    real.ids = Real(batch.ids, batch.count);
    real.counts = Real(batch.counts, batch.count);
    real.ttls = Real(batch.ttls, batch.count);
    zch::cuda::DeviceAnswer out;
    out.slots = Real(answer.slots, batch.count);
    out.outcomes = Real(answer.outcomes, batch.count);
    out.evictions = Real(answer.evictions, batch.count);
    out.eviction_count = Real(answer.eviction_count, 1);
    out.collisions_avoided = Real(answer.collisions_avoided, 1);
    ExpectDone(Ids().apply(options, Real(groups), real, out, Real(workspace), nullptr));
  });
}

absl::Status SimulatedStream::SweepIds(const zch::SlotMapOptions& options,
                                       const zch::cuda::DeviceGroups& groups,
                                       const zch::cuda::DeviceSweep& sweep,
                                       const zch::cuda::DeviceSweptIds& swept,
                                       kernels::cuda::Workspace workspace) {
  return Queue([=, this] {
    const std::size_t slots =
        std::size_t{sweep.bucket_end - sweep.bucket_begin} * groups.groups_per_bucket * zch::kLanes;
    ExpectDone(Ids().sweep(options, Real(groups), sweep,
                           {Real(swept.evictions, slots), Real(swept.count, 1)}, Real(workspace),
                           nullptr));
  });
}

absl::Status SimulatedStream::HalveIdCounts(const zch::SlotMapOptions& options,
                                            const zch::cuda::DeviceGroups& groups) {
  return Queue([=, this] { ExpectDone(Ids().halve_counts(options, Real(groups), nullptr)); });
}

}  // namespace embla::gpu
