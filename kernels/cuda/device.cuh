// The words that the kernels here are written in. nvcc takes them from CUDA; every other compiler
// takes them from emulated/device.h and runs the same kernels thread by thread on the host, where
// tests, sanitizers and machines without a GPU can reach them.
//
// A kernel is started by Launch only, and touches rows by Load and Store only: emulated ones check
// alignment, as a GPU would.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#include "kernels/cuda/emulated/device.h"
#endif

namespace embla::kernels::cuda {

struct Grid {
  unsigned blocks = 1;   // Along x.
  unsigned threads = 1;  // Per block; a multiple of 32.
  unsigned chunks = 1;   // Blocks along y.
};

inline constexpr unsigned kWarp = 32;

#ifdef __CUDACC__

inline constexpr unsigned kThreads = 256;         // Per block.
inline constexpr std::size_t kBlocksMax = 65535;  // Kernels stride over what does not fit.
// Warps that keep a large GPU busy. Results do not depend on it.
inline constexpr std::size_t kWarpsWanted = 65536;

inline cudaStream_t StreamOf(StreamHandle stream) { return static_cast<cudaStream_t>(stream); }

// Answers for this launch only: the error that an earlier call of the thread left is not its own.
template <typename... Parameters, typename... Arguments>
int Launch(void (*kernel)(Parameters...), const Grid& grid, StreamHandle stream,
           const Arguments&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid.blocks, grid.chunks);
  config.blockDim = dim3(grid.threads);
  config.stream = StreamOf(stream);
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// T is an unsigned integer or a vector of them; p is a multiple of its size.
template <typename T>
__device__ __forceinline__ T Load(const void* p) {
  return *static_cast<const T*>(p);
}
// Loads from memory that no thread of this launch writes.
template <typename T>
__device__ __forceinline__ T LoadConstant(const void* p) {
  return __ldg(static_cast<const T*>(p));
}
template <typename T>
__device__ __forceinline__ void Store(void* p, T value) {
  *static_cast<T*>(p) = value;
}
// Stores results that no kernel reads soon: they leave the caches first.
template <typename T>
__device__ __forceinline__ void StoreStreaming(void* p, T value) {
  __stcs(static_cast<T*>(p), value);
}

using ::uint2;
using ::uint4;

// The number of the lowest bit that is set, from 1 on; 0 without one.
__device__ __forceinline__ unsigned FirstBit(unsigned bits) {
  return static_cast<unsigned>(__ffs(static_cast<int>(bits)));
}

// Atomic among all threads of the device, in any order: maxima and sums of integers commute.
__device__ __forceinline__ void RaiseTo(std::uint32_t* p, std::uint32_t value) {
  atomicMax(p, value);
}
__device__ __forceinline__ void RaiseTo(std::uint64_t* p, std::uint64_t value) {
  atomicMax(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(value));
}
// Returns what was there.
__device__ __forceinline__ std::uint32_t AddTo(std::uint32_t* p, std::uint32_t value) {
  return atomicAdd(p, value);
}
__device__ __forceinline__ std::uint64_t AddTo(std::uint64_t* p, std::uint64_t value) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(p),
                   static_cast<unsigned long long>(value));
}

__device__ __forceinline__ std::uint32_t BitsOf(float v) { return __float_as_uint(v); }
__device__ __forceinline__ float FloatOf(std::uint32_t bits) { return __uint_as_float(bits); }

#endif  // __CUDACC__

// The result of a verb for invalid arguments.
inline constexpr int kInvalidValue = cudaErrorInvalidValue;

}  // namespace embla::kernels::cuda
