#include "kernels/cuda/sort.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cuda/device.cuh"

namespace embla::kernels::cuda {
namespace {

// Launches of CUB, for batches that one block sorts: a few thousand keys.
constexpr unsigned kSortLaunches = 1;
constexpr unsigned kSelectLaunches = 2;

void Sort(const SortPairs& pairs) {
  std::vector<std::uint32_t> order(pairs.count);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return pairs.keys[a] < pairs.keys[b]; });
  for (std::size_t i = 0; i < pairs.count; ++i) {
    pairs.keys_out[i] = pairs.keys[order[i]];
    pairs.values_out[i] = pairs.values[order[i]];
  }
}

void SelectFlagged(const std::uint8_t* flags, std::size_t count, std::uint32_t* indices,
                   std::uint32_t* index_count) {
  std::uint32_t found = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (flags[i] != 0) indices[found++] = i;
  }
  *index_count = found;
}

}  // namespace

int SortBytes(std::size_t count, std::size_t* bytes) {
  *bytes = count;  // Any size but zero: callers must provide it.
  return 0;
}

int SortAsync(const SortPairs& pairs, Workspace workspace, StreamHandle) {
  if (workspace.bytes < pairs.count) return cudaErrorInvalidValue;
  emulated::Queue([pairs] { Sort(pairs); }, kSortLaunches);
  return cudaSuccess;
}

int FlaggedBytes(std::size_t count, std::size_t* bytes) {
  *bytes = count;
  return 0;
}

int FlaggedAsync(const std::uint8_t* flags, std::size_t count, std::uint32_t* indices,
                 std::uint32_t* index_count, Workspace workspace, StreamHandle) {
  if (workspace.bytes < count) return cudaErrorInvalidValue;
  emulated::Queue([=] { SelectFlagged(flags, count, indices, index_count); }, kSelectLaunches);
  return cudaSuccess;
}

}  // namespace embla::kernels::cuda
