#include "tools/ptx_run/planted.h"

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/testing/device_memory.h"

namespace embla::ptx_run {
namespace {

namespace device = kernels::cuda;

constexpr unsigned kBlocks = 2;
constexpr unsigned kThreads = 64;
constexpr std::size_t kCount = kBlocks * kThreads;

__device__ std::size_t ThreadOfGrid() { return blockIdx.x * kThreads + threadIdx.x; }

// out[i] = in[i] + the neighbour's; `meets`: once it is there.
__global__ void SumNeighboursKernel(std::uint32_t* shared, std::uint32_t* out, bool meets) {
  const std::size_t i = ThreadOfGrid();
  device::Store<std::uint32_t>(shared + i, static_cast<std::uint32_t>(i));
  if (meets) __syncwarp();
  out[i] = device::Load<std::uint32_t>(shared + (i ^ 1));
}

__global__ void CopyNextKernel(const std::uint32_t* in, std::uint32_t* out) {
  const std::size_t i = ThreadOfGrid();
  out[i] = in[i + 1];
}

__global__ void NameBlockKernel(std::uint32_t* out) {
  if (threadIdx.x == 0) *out = blockIdx.x;
}

__global__ void CopyWideKernel(const std::uint32_t* in, std::uint32_t* out) {
  const auto v = device::Load<device::uint4>(in + 2 * ThreadOfGrid());
  out[ThreadOfGrid()] = v.x + v.w;
}

__global__ void CountUpKernel(std::uint32_t* counts) {
  const std::size_t i = ThreadOfGrid();
  for (int turn = 0; turn < 2; ++turn) {
    counts[i] = device::LoadConstant<std::uint32_t>(counts + i) + 1;
    __syncwarp();
  }
}

__global__ void MeetAllKernel(std::uint32_t* out) {
  if (threadIdx.x % 32 == 7) return;
  out[ThreadOfGrid()] = __ballot_sync(0xffffffffu, true);
}

template <typename... Parameters, typename... Arguments>
int Run(void (*kernel)(Parameters...), const Arguments&... arguments) {
  return device::Launch(kernel, {kBlocks, kThreads, 1}, nullptr, arguments...);
}

struct Arrays {
  device::OnDevice in{nullptr, 4 * kCount * sizeof(std::uint32_t)};
  device::OnDevice out{nullptr, kCount * sizeof(std::uint32_t)};

  int SumNeighbours(bool meets) const {
    return Run(SumNeighboursKernel, in.As<std::uint32_t>(), out.As<std::uint32_t>(), meets);
  }
};

}  // namespace

int RunWithoutFault() { return Arrays().SumNeighbours(true); }

int RunWithoutSyncWarp() { return Arrays().SumNeighbours(false); }

int RunPastTheEnd() {
  const Arrays arrays;
  // The allocation has a byte more than it is asked for.
  const std::uint32_t* const last = arrays.in.As<std::uint32_t>() + 3 * kCount;
  return Run(CopyNextKernel, last, arrays.out.As<std::uint32_t>());
}

int RunBlocksThatRace() {
  const Arrays arrays;
  return Run(NameBlockKernel, arrays.out.As<std::uint32_t>());
}

int RunMisaligned() {
  const Arrays arrays;
  const auto* const in = arrays.in.As<std::uint32_t>();
  return Run(CopyWideKernel, in, arrays.out.As<std::uint32_t>());
}

int RunWriteOfConstant() {
  const Arrays arrays;
  return Run(CountUpKernel, arrays.out.As<std::uint32_t>());
}

int RunWithoutALane() {
  const Arrays arrays;
  return Run(MeetAllKernel, arrays.out.As<std::uint32_t>());
}

int RunOutsideOfMemory() {
  const Arrays arrays;
  const std::uint32_t* gone = nullptr;
  {
    const device::OnDevice freed(nullptr, 8 * kCount * sizeof(std::uint32_t));
    gone = freed.As<std::uint32_t>();
  }
  return Run(CopyNextKernel, gone, arrays.out.As<std::uint32_t>());
}

}  // namespace embla::ptx_run
