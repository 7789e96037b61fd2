// Vectors that one request after the other uses: they keep their memory, unless it is much more
// than requests need now.
#pragma once

#include <cstddef>
#include <vector>

namespace embla {

// Makes `vector` have `size` elements; those that were there may keep their values.
template <typename T>
void ResizeReused(std::vector<T>& vector, std::size_t size) {
  constexpr std::size_t kRetainedBytes = std::size_t{16} << 20;
  const bool much = vector.capacity() * sizeof(T) > kRetainedBytes;
  if (much && size < vector.capacity() / 8) vector = std::vector<T>();
  vector.resize(size);
}

}  // namespace embla
