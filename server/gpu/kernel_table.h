// The kernels that a device runs: those of kernels/cuda and server/zch/cuda, under their contracts,
// as pointers. A program without nvcc links none of them, and a test chooses which a simulated
// device runs.
#pragma once

#include "kernels/cuda/arrays.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/copy_mean.h"
#include "kernels/cuda/initialize.h"
#include "kernels/cuda/lookup.h"
#include "kernels/cuda/optimizer_step.h"
#include "server/zch/cuda/apply.h"
#include "server/zch/cuda/find.h"
#include "server/zch/cuda/sweep.h"

namespace embla::gpu {

// On maps of ZCH tables' ids.
struct IdKernels {
  decltype(&zch::cuda::FindAsync) find;
  decltype(&zch::cuda::ApplyBytes) apply_bytes;
  decltype(&zch::cuda::ApplyAsync) apply;
  decltype(&zch::cuda::SweepBytes) sweep_bytes;
  decltype(&zch::cuda::SweepAsync) sweep;
  decltype(&zch::cuda::HalveCountsAsync) halve_counts;
};

struct KernelTable {
  decltype(&kernels::cuda::InitializeAsync) initialize;
  decltype(&kernels::cuda::InitializeIdsAsync) initialize_ids;
  decltype(&kernels::cuda::GatherAsync) gather;
  decltype(&kernels::cuda::ScatterAsync) scatter;
  decltype(&kernels::cuda::PoolAsync) pool;
  decltype(&kernels::cuda::DivideRowsAsync) divide_rows;
  decltype(&kernels::cuda::ConvertAsync) convert;
  decltype(&kernels::cuda::StepAsync) step;
  decltype(&kernels::cuda::ExpandBagsAsync) expand_bags;
  decltype(&kernels::cuda::UpdateBatchBytes) update_bytes;
  decltype(&kernels::cuda::UpdateBatchAsync) update;
  decltype(&kernels::cuda::FillAsync) fill;
  decltype(&kernels::cuda::SumInOrderAsync) sum_in_order;
  decltype(&kernels::cuda::MeanOfCopiesAsync) mean_of_copies;
  IdKernels ids;
};

// The kernels that the program is linked with: embla::zch_cuda, which nvcc has compiled, or
// embla::zch_cuda_emulated. A program that links neither does not call this.
inline const KernelTable& LinkedKernels() {
  static constexpr KernelTable kKernels = {
      .initialize = &kernels::cuda::InitializeAsync,
      .initialize_ids = &kernels::cuda::InitializeIdsAsync,
      .gather = &kernels::cuda::GatherAsync,
      .scatter = &kernels::cuda::ScatterAsync,
      .pool = &kernels::cuda::PoolAsync,
      .divide_rows = &kernels::cuda::DivideRowsAsync,
      .convert = &kernels::cuda::ConvertAsync,
      .step = &kernels::cuda::StepAsync,
      .expand_bags = &kernels::cuda::ExpandBagsAsync,
      .update_bytes = &kernels::cuda::UpdateBatchBytes,
      .update = &kernels::cuda::UpdateBatchAsync,
      .fill = &kernels::cuda::FillAsync,
      .sum_in_order = &kernels::cuda::SumInOrderAsync,
      .mean_of_copies = &kernels::cuda::MeanOfCopiesAsync,
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
