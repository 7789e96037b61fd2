// CUDA's words for a host compiler: enough of them for the kernels of this folder, and no more.
//
// A launch runs its blocks one after the other. The threads of a block are fibers of the calling
// thread: each runs until it meets others (a shuffle, a ballot, a barrier), and waits there for the
// lanes that its mask names. Threads that wait for each other in vain end the process with a
// message, and so does an address that a GPU would refuse.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#include "kernels/cuda/launch.h"

// Placement of functions and variables by CUDA's compiler; here there is one place.
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static thread_local

namespace embla::kernels::cuda {

struct Grid;

enum : int { cudaSuccess = 0, cudaErrorInvalidValue = 1 };

struct alignas(8) uint2 {
  std::uint32_t x, y;
};
struct alignas(16) uint4 {
  std::uint32_t x, y, z, w;
};

// Small, so that tests reach the second turn of every loop over a grid, and few threads are idle.
inline constexpr unsigned kThreads = 64;
inline constexpr std::size_t kBlocksMax = 3;
inline constexpr std::size_t kWarpsWanted = 4;

namespace emulated {

struct Index {
  unsigned x = 0;
  unsigned y = 0;
};

// Runs body once for each thread of the grid.
void Run(const Grid& grid, const std::function<void()>& body);

// Queues work on the stream: done at once, unless this thread records (recording.h). `launches`:
// how many kernels a GPU needs for it.
void Queue(std::function<void()> work, unsigned launches);
// A launch: Run, queued.
void QueueGrid(const Grid& grid, std::function<void()> body);

// Hands `value` to the lanes of `mask`, which must all call, and returns theirs: 32 values.
const std::uint64_t* Exchange(unsigned mask, std::uint64_t value);
void SyncBlock();

// Ends the process when p is no multiple of `size`.
void CheckAlignment(const void* p, std::size_t size);

template <typename T>
T ToValue(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <typename T>
std::uint64_t ToBits(T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

}  // namespace emulated

inline thread_local emulated::Index threadIdx;
inline thread_local emulated::Index blockIdx;
inline thread_local emulated::Index blockDim;
inline thread_local emulated::Index gridDim;

template <typename... Parameters, typename... Arguments>
int Launch(void (*kernel)(Parameters...), const Grid& grid, StreamHandle,
           const Arguments&... arguments) {
  emulated::QueueGrid(grid, [=] { kernel(arguments...); });
  return cudaSuccess;
}

template <typename T>
T Load(const void* p) {
  emulated::CheckAlignment(p, sizeof(T));
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}
template <typename T>
T LoadConstant(const void* p) {
  return Load<T>(p);
}
template <typename T>
void Store(void* p, T value) {
  emulated::CheckAlignment(p, sizeof(T));
  std::memcpy(p, &value, sizeof(T));
}
template <typename T>
void StoreStreaming(void* p, T value) {
  Store(p, value);
}

inline std::uint32_t BitsOf(float v) { return std::bit_cast<std::uint32_t>(v); }
inline float FloatOf(std::uint32_t bits) { return std::bit_cast<float>(bits); }

template <typename T>
T __shfl_sync(unsigned mask, T value, unsigned source, unsigned width = 32) {
  const unsigned first = threadIdx.x % 32 / width * width;
  const std::uint64_t* const values = emulated::Exchange(mask, emulated::ToBits(value));
  return emulated::ToValue<T>(values[first + source % width]);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, unsigned lanes, unsigned = 32) {
  return emulated::ToValue<T>(
      emulated::Exchange(mask, emulated::ToBits(value))[(threadIdx.x % 32) ^ lanes]);
}
inline unsigned __ballot_sync(unsigned mask, bool predicate) {
  const std::uint64_t* const values = emulated::Exchange(mask, predicate ? 1 : 0);
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) != 0 && values[lane] != 0) ballot |= 1u << lane;
  }
  return ballot;
}
inline void __syncwarp(unsigned mask = 0xffffffffu) { emulated::Exchange(mask, 0); }
inline void __syncthreads() { emulated::SyncBlock(); }

inline unsigned FirstBit(unsigned bits) {
  return bits == 0 ? 0u : static_cast<unsigned>(std::countr_zero(bits)) + 1;
}
// Blocks take turns, and threads do: a plain access is an atomic one.
inline std::uint32_t atomicOr(std::uint32_t* p, std::uint32_t bits) {
  const std::uint32_t before = *p;
  *p |= bits;
  return before;
}
template <typename T>
void RaiseTo(T* p, T value) {
  if (*p < value) *p = value;
}
template <typename T>
T AddTo(T* p, T value) {
  const T before = *p;
  *p += value;
  return before;
}

}  // namespace embla::kernels::cuda
