// The verbs of server/zch/cuda on host memory, for simulated GPUs.
#pragma once

#include "server/zch/cuda/apply.h"
#include "server/zch/cuda/find.h"
#include "server/zch/cuda/sweep.h"

namespace embla::gpu {

struct IdKernels {
  decltype(&zch::cuda::FindAsync) find;
  decltype(&zch::cuda::ApplyBytes) apply_bytes;
  decltype(&zch::cuda::ApplyAsync) apply;
  decltype(&zch::cuda::SweepBytes) sweep_bytes;
  decltype(&zch::cuda::SweepAsync) sweep;
  decltype(&zch::cuda::HalveCountsAsync) halve_counts;
};

// The CPU's: a SlotMap over a copy of the groups, for each call.
const IdKernels& HostIdKernels();

}  // namespace embla::gpu
