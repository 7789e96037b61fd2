// The kernels as plain C++ (kernels/cuda/emulated). Their names are unique among the files.
#include "server/zch/cuda/apply.cu"  // NOLINT
#include "server/zch/cuda/find.cu"   // NOLINT
#include "server/zch/cuda/sweep.cu"  // NOLINT
