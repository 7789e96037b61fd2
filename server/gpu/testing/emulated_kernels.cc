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
      .fill = &kernels::cuda::FillAsync,
      .sum_in_order = &kernels::cuda::SumInOrderAsync,
  };
  return kKernels;
}

}  // namespace embla::gpu
