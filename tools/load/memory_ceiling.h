// The ceiling of the memory alone: reads of random rows of a table this size by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>

#include "tools/load/id_stream.h"

namespace embla::load {

// Thread safety: one thread at a time.
class MemoryCeiling {
 public:
  // fp32 rows of `dim` columns; as many of the distribution's `rows` as fit into `bytes_max`.
  MemoryCeiling(IdDistribution distribution, std::int64_t rows, int dim, std::int64_t bytes_max);

  // Rows per second at the best prefetch distance, each tried on `count` fresh ids.
  double Run(std::size_t count);

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* memory) const;
  };

  const IdDistribution distribution_;
  const std::size_t row_bytes_;
  const std::int64_t rows_;
  std::unique_ptr<std::byte, Unmap> memory_;  // Huge pages where there are any, as in the store.
  std::mt19937_64 random_;
  std::uint32_t sum_ = 0;
};

}  // namespace embla::load
