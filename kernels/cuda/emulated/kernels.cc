// The kernels as plain C++. Their names are unique among the files, so that one unit takes all.
#include "kernels/cuda/arrays.cu"          // NOLINT
#include "kernels/cuda/combine.cu"         // NOLINT
#include "kernels/cuda/convert.cu"         // NOLINT
#include "kernels/cuda/copy_mean.cu"       // NOLINT
#include "kernels/cuda/gather.cu"          // NOLINT
#include "kernels/cuda/initialize.cu"      // NOLINT
#include "kernels/cuda/optimizer_step.cu"  // NOLINT
#include "kernels/cuda/pool.cu"            // NOLINT
