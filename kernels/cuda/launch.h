// Conventions of every CUDA verb: streams and error codes.
//
// Contract of all verbs named ...Async in this folder:
//   - they queue kernels on `stream` and return at once; nothing waits, nothing allocates, and
//     counts that only the device knows are read there, so a CUDA graph can capture them
//   - the result is 0 (cudaSuccess) or a cudaError_t: cudaErrorInvalidValue for arguments that the
//     verb does not take, else what the launch said. Errors of the run itself come with the stream
//   - pointers are device memory unless a comment says host; memory must stay until the stream has
//     passed it. Structs of parameters are host memory and are copied
//   - results have the bits of the CPU kernels: same order of sums, nothing fused (the library is
//     built with --fmad=false), no float atomics. They depend on no grid, no device, no timing
//   - rows of tables are fastest where base and stride are multiples of 16 bytes; every other
//     multiple of the element's size is right, too. Inputs and outputs may have any alignment
//
// The same sources are also built as plain C++ (kernels/cuda/emulated), where "device" memory is
// host memory and a verb has finished when it returns: for tests and simulated devices.
#pragma once

#include <cstddef>

namespace embla::kernels::cuda {

// A cudaStream_t, so that no header here needs CUDA. Null is the default stream.
using StreamHandle = void*;

// Scratch memory that a verb may overwrite until the stream has passed it; 256-byte aligned.
struct Workspace {
  void* base = nullptr;
  std::size_t bytes = 0;
};

// 0 where there is no device or no driver; 1 when emulated.
int DeviceCount();
// The text of an error code. Static memory.
const char* ErrorText(int error);

}  // namespace embla::kernels::cuda
