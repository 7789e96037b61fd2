// The kernels as plain C++ (kernels/cuda/emulated).
#include "server/zch/cuda/find.cu"  // NOLINT
