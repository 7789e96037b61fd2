// The kernels of kernels/cuda and server/zch/cuda on host memory, computed by the CPU: for
// simulated devices of programs that link nvcc's kernels, of many rows, or under ThreadSanitizer,
// which does not follow the threads of the emulated ones.
#pragma once

#include "server/gpu/kernel_table.h"

namespace embla::gpu {

const KernelTable& HostKernels();

// On ids: a SlotMap over a copy of the groups, for each call.
const IdKernels& HostIdKernels();

}  // namespace embla::gpu
