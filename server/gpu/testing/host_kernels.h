// The kernels of kernels/cuda and server/zch/cuda computed by the CPU: the default of simulated
// devices. With the emulated ones their tests take about eight times as long; ThreadSanitizer does
// not follow emulated threads; and a program with nvcc's kernels cannot link them.
#pragma once

#include "server/gpu/kernel_table.h"

namespace embla::gpu {

const KernelTable& HostKernels();

// On ids: a SlotMap over a copy of the groups, for each call.
const IdKernels& HostIdKernels();

}  // namespace embla::gpu
