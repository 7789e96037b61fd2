#include "kernels/cuda/sort.h"

#include <thrust/iterator/counting_iterator.h>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_select.cuh>

#include "kernels/cuda/device.cuh"

namespace embla::kernels::cuda {
namespace {

int BitsFor(std::uint32_t key_max) {
  int bits = 1;
  while (bits < 32 && key_max >> bits != 0) ++bits;
  return bits;
}

// CUB takes null memory for a question about its size.
void* NotNull(void* memory) { return memory == nullptr ? reinterpret_cast<void*>(256) : memory; }

// CUB asks for the thread's last error after its launches: an earlier call's is not theirs.
void ForgetEarlierErrors() { cudaGetLastError(); }

int RunSort(const SortPairs& pairs, void* memory, std::size_t* bytes, StreamHandle stream) {
  ForgetEarlierErrors();
  return cub::DeviceRadixSort::SortPairs(memory, *bytes, pairs.keys, pairs.keys_out, pairs.values,
                                         pairs.values_out, static_cast<int>(pairs.count), 0,
                                         BitsFor(pairs.key_max), StreamOf(stream));
}

int RunFlagged(const std::uint8_t* flags, std::size_t count, std::uint32_t* indices,
               std::uint32_t* index_count, Workspace* workspace, StreamHandle stream) {
  ForgetEarlierErrors();
  return cub::DeviceSelect::Flagged(
      workspace->base, workspace->bytes, thrust::counting_iterator<std::uint32_t>(0), flags,
      indices, index_count, static_cast<std::int64_t>(count), StreamOf(stream));
}

}  // namespace

int SortBytes(std::size_t count, std::size_t* bytes) {
  SortPairs pairs;
  pairs.count = count;
  pairs.key_max = 0xffffffff;
  *bytes = 0;
  return RunSort(pairs, nullptr, bytes, nullptr);
}

int SortAsync(const SortPairs& pairs, Workspace workspace, StreamHandle stream) {
  return RunSort(pairs, NotNull(workspace.base), &workspace.bytes, stream);
}

int FlaggedBytes(std::size_t count, std::size_t* bytes) {
  Workspace workspace;
  const int error = RunFlagged(nullptr, count, nullptr, nullptr, &workspace, nullptr);
  *bytes = workspace.bytes;
  return error;
}

int FlaggedAsync(const std::uint8_t* flags, std::size_t count, std::uint32_t* indices,
                 std::uint32_t* index_count, Workspace workspace, StreamHandle stream) {
  workspace.base = NotNull(workspace.base);
  return RunFlagged(flags, count, indices, index_count, &workspace, stream);
}

}  // namespace embla::kernels::cuda
