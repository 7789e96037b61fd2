#include "server/gpu/testing/emulated_kernels.h"
#include "server/shard/testing/gpu_kernels.h"

namespace embla::testing {

const gpu::SimulatedKernels* GpuKernels() { return &gpu::EmulatedKernels(); }

}  // namespace embla::testing
