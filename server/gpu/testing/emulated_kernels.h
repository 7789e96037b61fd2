// The kernels of kernels/cuda on the emulated device, for simulated GPUs. Slow: tests of small
// tables.
#pragma once

#include "server/gpu/testing/simulated_device.h"

namespace embla::gpu {

const SimulatedKernels& EmulatedKernels();

}  // namespace embla::gpu
