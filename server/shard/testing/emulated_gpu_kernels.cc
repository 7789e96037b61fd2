#include "server/shard/testing/gpu_kernels.h"

namespace embla::testing {

const gpu::KernelTable* GpuKernels() { return &gpu::LinkedKernels(); }

}  // namespace embla::testing
