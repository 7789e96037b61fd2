// The verbs of a CUDA stream on the maps of ZCH tables' ids.
#include "core/base/status_macros.h"
#include "server/gpu/cuda_stream.h"
#include "server/zch/cuda/apply.h"
#include "server/zch/cuda/find.h"
#include "server/zch/cuda/sweep.h"

namespace embla::gpu {

absl::StatusOr<std::size_t> CudaStream::ApplyIdsBytes(std::size_t count) {
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  std::size_t bytes = 0;
  EMBLA_RETURN_IF_ERROR(device_.Check(zch::cuda::ApplyBytes(count, &bytes), "ApplyBytes"));
  return bytes;
}

absl::StatusOr<std::size_t> CudaStream::SweepIdsBytes(const zch::cuda::DeviceGroups& groups,
                                                      std::uint32_t bucket_count) {
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  std::size_t bytes = 0;
  EMBLA_RETURN_IF_ERROR(
      device_.Check(zch::cuda::SweepBytes(groups, bucket_count, &bytes), "SweepBytes"));
  return bytes;
}

absl::Status CudaStream::FindIds(const zch::cuda::DeviceGroups& groups, const std::int64_t* ids,
                                 std::size_t count, std::int64_t* slots, std::uint8_t* outcomes) {
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  return device_.Check(zch::cuda::FindAsync(groups, ids, count, slots, outcomes, stream_),
                       "FindIds");
}

absl::Status CudaStream::ApplyIds(const zch::SlotMapOptions& options,
                                  const zch::cuda::DeviceGroups& groups,
                                  const zch::cuda::DeviceBatch& batch,
                                  const zch::cuda::DeviceAnswer& answer,
                                  kernels::cuda::Workspace workspace) {
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  return device_.Check(zch::cuda::ApplyAsync(options, groups, batch, answer, workspace, stream_),
                       "ApplyIds");
}

absl::Status CudaStream::SweepIds(const zch::SlotMapOptions& options,
                                  const zch::cuda::DeviceGroups& groups,
                                  const zch::cuda::DeviceSweep& sweep,
                                  const zch::cuda::DeviceSweptIds& swept,
                                  kernels::cuda::Workspace workspace) {
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  return device_.Check(zch::cuda::SweepAsync(options, groups, sweep, swept, workspace, stream_),
                       "SweepIds");
}

absl::Status CudaStream::HalveIdCounts(const zch::SlotMapOptions& options,
                                       const zch::cuda::DeviceGroups& groups) {
  EMBLA_RETURN_IF_ERROR(device_.MakeCurrent());
  return device_.Check(zch::cuda::HalveCountsAsync(options, groups, stream_), "HalveIdCounts");
}

}  // namespace embla::gpu
