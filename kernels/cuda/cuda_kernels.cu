// A group of 16 lanes takes one row or bag; lane l takes columns l, l+16, ..., which is also the
// order of the 16-lane tree of row_kernels.h. Grids stride over rows.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/lookup.h"
#include "kernels/cuda/optimizer_step.h"
#include "kernels/random.h"

namespace embla::kernels::cuda {
namespace {

constexpr unsigned kLanes = 16;
constexpr unsigned kThreads = 256;
constexpr unsigned kRowsPerBlock = kThreads / kLanes;
constexpr std::size_t kBlocksMax = 1 << 16;

unsigned Blocks(std::size_t rows) {
  return static_cast<unsigned>(std::min((rows + kRowsPerBlock - 1) / kRowsPerBlock, kBlocksMax));
}

struct Place {
  std::size_t row;     // The group's first row.
  std::size_t stride;  // Rows between two rows of the group.
  unsigned lane;
};
__device__ Place PlaceOfThread() {
  return {blockIdx.x * std::size_t{kRowsPerBlock} + threadIdx.x / kLanes,
          gridDim.x * std::size_t{kRowsPerBlock}, threadIdx.x % kLanes};
}

template <typename T>
__device__ T* RowAt(const void* base, std::size_t stride_bytes, std::size_t row) {
  return reinterpret_cast<T*>(
      const_cast<char*>(static_cast<const char*>(base) + row * stride_bytes));
}

template <typename In, typename Out>
__global__ void GatherKernel(Rows rows, const std::uint32_t* slots, std::size_t count, Output out) {
  const Place place = PlaceOfThread();
  for (std::size_t i = place.row; i < count; i += place.stride) {
    const std::uint32_t slot = slots[i];
    const In* const row = RowAt<const In>(rows.base, rows.stride_bytes, slot == kNoSlot ? 0 : slot);
    Out* const target = RowAt<Out>(out.base, out.stride_bytes, i);
    for (unsigned c = place.lane; c < rows.columns; c += kLanes) {
      ToNearest(slot == kNoSlot ? 0.0f : ToFloat(row[c]), &target[c]);
    }
  }
}

template <typename In>
__global__ void PoolKernel(Rows rows, DeviceBags bags, Output out) {
  const Place place = PlaceOfThread();
  for (std::size_t b = place.row; b < bags.count; b += place.stride) {
    float* const target = RowAt<float>(out.base, out.stride_bytes, b);
    for (unsigned c = place.lane; c < rows.columns; c += kLanes) {
      float sum = 0.0f;
      for (std::uint32_t i = bags.offsets[b]; i < bags.offsets[b + 1]; ++i) {
        if (bags.slots[i] == kNoSlot) continue;
        const In* const row = RowAt<const In>(rows.base, rows.stride_bytes, bags.slots[i]);
        const float value = ToFloat(row[c]);
        sum = sum + (bags.weights == nullptr ? value : bags.weights[i] * value);
      }
      target[c] = sum;
    }
  }
}

// lane 0 of the group gets the sum over the group, by the tree.
__device__ float TreeSum(float v) {
  const unsigned group = 0xffffu << (threadIdx.x % 32 / kLanes * kLanes);
  for (unsigned half = kLanes / 2; half > 0; half /= 2) {
    v = v + __shfl_down_sync(group, v, half, kLanes);
  }
  return __shfl_sync(group, v, 0, kLanes);
}

template <typename T>
__device__ float RowwiseMu(const StepParameters& p, const StepRows& rows,
                           const DeviceStepBatch& batch, std::size_t i, unsigned lane) {
  const std::uint32_t slot = batch.slots[i];
  float sum_squares = 0.0f;
  if (batch.row_sum_squares != nullptr && p.l2 == 0.0f) {
    sum_squares = batch.row_sum_squares[i];
  } else {
    const T* const w = RowAt<const T>(rows.weights.base, rows.weights.stride_bytes, slot);
    for (unsigned c = lane; c < rows.weights.columns; c += kLanes) {
      float h = batch.gradients[i * batch.stride + c];
      if (p.l2 != 0.0f) h = h + p.l2 * ToFloat(w[c]);
      sum_squares = sum_squares + h * h;
    }
    sum_squares = TreeSum(sum_squares);
  }
  const float sum = rows.row_state[slot] + sum_squares / static_cast<float>(rows.dim);
  __syncwarp(0xffffu << (threadIdx.x % 32 / kLanes * kLanes));  // All lanes have read it.
  if (lane == 0) rows.row_state[slot] = sum;
  return p.learning_rate / (sqrtf(sum) + p.eps);
}

template <typename T>
__global__ void StepKernel(StepParameters p, StepRows rows, DeviceStepBatch batch) {
  const Place place = PlaceOfThread();
  const float keep = 1.0f - p.learning_rate * p.decoupled;
  const std::uint64_t batch_key = BatchKey(RandomPurpose::kRound, p.seed, batch.step, p.table_id);
  for (std::size_t i = place.row; i < batch.count; i += place.stride) {
    const std::uint32_t slot = batch.slots[i];
    const bool rowwise = p.rule == StepRule::kRowwiseAdagrad;
    const float mu = rowwise ? RowwiseMu<T>(p, rows, batch, i, place.lane) : p.learning_rate;
    const float kept = rowwise ? keep - mu * p.l2 : keep;
    const std::uint64_t key = RowKey(batch_key, rows.first_row + slot);
    T* const weights = RowAt<T>(rows.weights.base, rows.weights.stride_bytes, slot);
    for (unsigned c = place.lane; c < rows.weights.columns; c += kLanes) {
      const float w = ToFloat(weights[c]);
      const float g = batch.gradients[i * batch.stride + c];
      const float stepped = kept * w - mu * (rowwise ? g : g + p.l2 * w);
      if (p.stochastic) {
        ToStochastic(stepped, RandomBits(key, rows.column_begin + c), &weights[c]);
      } else {
        ToNearest(stepped, &weights[c]);
      }
    }
  }
}

cudaStream_t StreamOf(StreamHandle stream) { return static_cast<cudaStream_t>(stream); }

template <typename In>
int GatherFrom(const Rows& rows, const std::uint32_t* slots, std::size_t count, const Output& out,
               StreamHandle stream) {
  const unsigned blocks = Blocks(count);
  switch (out.element) {
    case Element::kFloat32:
      GatherKernel<In, float><<<blocks, kThreads, 0, StreamOf(stream)>>>(rows, slots, count, out);
      break;
    case Element::kFloat16:
      GatherKernel<In, __half><<<blocks, kThreads, 0, StreamOf(stream)>>>(rows, slots, count, out);
      break;
    case Element::kBFloat16:
      GatherKernel<In, __nv_bfloat16>
          <<<blocks, kThreads, 0, StreamOf(stream)>>>(rows, slots, count, out);
      break;
    case Element::kInt8Rowwise:
      return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace

int DeviceCount() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

const char* ErrorText(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

int GatherAsync(const Rows& rows, const std::uint32_t* slots, std::size_t count, const Output& out,
                StreamHandle stream) {
  if (count == 0) return cudaSuccess;
  switch (rows.element) {
    case Element::kFloat32:
      return GatherFrom<float>(rows, slots, count, out, stream);
    case Element::kFloat16:
      return GatherFrom<__half>(rows, slots, count, out, stream);
    case Element::kBFloat16:
      return GatherFrom<__nv_bfloat16>(rows, slots, count, out, stream);
    case Element::kInt8Rowwise:
      break;
  }
  return cudaErrorInvalidValue;
}

int PoolAsync(const Rows& rows, const DeviceBags& bags, const Output& out, StreamHandle stream) {
  if (bags.count == 0) return cudaSuccess;
  if (out.element != Element::kFloat32) return cudaErrorInvalidValue;
  const unsigned blocks = Blocks(bags.count);
  switch (rows.element) {
    case Element::kFloat32:
      PoolKernel<float><<<blocks, kThreads, 0, StreamOf(stream)>>>(rows, bags, out);
      break;
    case Element::kFloat16:
      PoolKernel<__half><<<blocks, kThreads, 0, StreamOf(stream)>>>(rows, bags, out);
      break;
    case Element::kBFloat16:
      PoolKernel<__nv_bfloat16><<<blocks, kThreads, 0, StreamOf(stream)>>>(rows, bags, out);
      break;
    case Element::kInt8Rowwise:
      return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

int StepAsync(const StepParameters& parameters, const StepRows& rows, const DeviceStepBatch& batch,
              StreamHandle stream) {
  if (parameters.rule != StepRule::kSgd && parameters.rule != StepRule::kRowwiseAdagrad) {
    return cudaErrorInvalidValue;
  }
  if (batch.count == 0) return cudaSuccess;
  const unsigned blocks = Blocks(batch.count);
  switch (rows.weights.element) {
    case Element::kFloat32:
      StepKernel<float><<<blocks, kThreads, 0, StreamOf(stream)>>>(parameters, rows, batch);
      break;
    case Element::kFloat16:
      StepKernel<__half><<<blocks, kThreads, 0, StreamOf(stream)>>>(parameters, rows, batch);
      break;
    case Element::kBFloat16:
      StepKernel<__nv_bfloat16><<<blocks, kThreads, 0, StreamOf(stream)>>>(parameters, rows, batch);
      break;
    case Element::kInt8Rowwise:
      return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace embla::kernels::cuda
