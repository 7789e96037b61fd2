#include "kernels/cuda/launch.h"

namespace embla::kernels::cuda {

int DeviceCount() { return 1; }

const char* ErrorText(int error) { return error == 0 ? "no error" : "invalid argument"; }

}  // namespace embla::kernels::cuda
