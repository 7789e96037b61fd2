// The kernels that simulated GPUs of a test run. The program links one of host_gpu_kernels.cc and
// emulated_gpu_kernels.cc.
#pragma once

#include "server/gpu/kernel_table.h"

namespace embla::testing {

// Null: the CPU's kernels. Else those of kernels/cuda and server/zch/cuda, emulated, which are
// slow.
const gpu::KernelTable* GpuKernels();

}  // namespace embla::testing
