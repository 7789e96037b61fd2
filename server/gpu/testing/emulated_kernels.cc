#include "server/gpu/testing/emulated_kernels.h"

namespace embla::gpu {

const SimulatedKernels& EmulatedKernels() {
  static constexpr SimulatedKernels kKernels = {
      .initialize = &kernels::cuda::InitializeAsync,
      .initialize_ids = &kernels::cuda::InitializeIdsAsync,
      .gather = &kernels::cuda::GatherAsync,
      .scatter = &kernels::cuda::ScatterAsync,
      .pool = &kernels::cuda::PoolAsync,
      .step = &kernels::cuda::StepAsync,
      .update_bytes = &kernels::cuda::UpdateBatchBytes,
      .update = &kernels::cuda::UpdateBatchAsync,
      .fill = &kernels::cuda::FillAsync,
      .sum_in_order = &kernels::cuda::SumInOrderAsync,
      .ids = {.find = &zch::cuda::FindAsync,
              .apply_bytes = &zch::cuda::ApplyBytes,
              .apply = &zch::cuda::ApplyAsync,
              .sweep_bytes = &zch::cuda::SweepBytes,
              .sweep = &zch::cuda::SweepAsync,
              .halve_counts = &zch::cuda::HalveCountsAsync},
  };
  return kKernels;
}

}  // namespace embla::gpu
