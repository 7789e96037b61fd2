#include "kernels/cuda/sort.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace embla::kernels::cuda {

int SortBytes(std::size_t count, std::size_t* bytes) {
  *bytes = count;  // Any size but zero: callers must provide it.
  return 0;
}

int SortAsync(const SortPairs& pairs, Workspace workspace, StreamHandle) {
  if (workspace.bytes < pairs.count) return 1;
  std::vector<std::uint32_t> order(pairs.count);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return pairs.keys[a] < pairs.keys[b]; });
  for (std::size_t i = 0; i < pairs.count; ++i) {
    pairs.keys_out[i] = pairs.keys[order[i]];
    pairs.values_out[i] = pairs.values[order[i]];
  }
  return 0;
}

int BoundariesBytes(std::size_t count, std::size_t* bytes) {
  *bytes = count;
  return 0;
}

int BoundariesAsync(const SortedKeys& sorted, std::uint32_t* boundaries,
                    std::uint32_t* boundary_count, Workspace workspace, StreamHandle) {
  if (workspace.bytes < sorted.count) return 1;
  std::uint32_t found = 0;
  for (std::uint32_t i = 0; i <= sorted.count; ++i) {
    const bool inside = i != 0 && i != sorted.count;
    if (!inside || sorted.keys[i] != sorted.keys[i - 1]) boundaries[found++] = i;
  }
  *boundary_count = found;
  return 0;
}

int FlaggedBytes(std::size_t count, std::size_t* bytes) {
  *bytes = count;
  return 0;
}

int FlaggedAsync(const std::uint8_t* flags, std::size_t count, std::uint32_t* indices,
                 std::uint32_t* index_count, Workspace workspace, StreamHandle) {
  if (workspace.bytes < count) return 1;
  std::uint32_t found = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (flags[i] != 0) indices[found++] = i;
  }
  *index_count = found;
  return 0;
}

}  // namespace embla::kernels::cuda
