// The mean of several copies of rows: what becomes of replica groups when they are averaged.
//
// A value that has the same bits in all copies keeps them. Any other value is the sum of the copies
// in their order, in fp32, times 1/copies; of a step count it is the largest. So the result depends
// on the copies only, and averaging equal copies changes nothing, whatever their number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace embla::kernels {

// A row as it is averaged, in floats: weights, step counts, the rest of the optimizer's state.
struct CopyRow {
  std::size_t weights = 0;
  std::size_t counters = 0;
  std::size_t floats = 0;  // All of it.
};

// How far weights were from their means.
struct Divergence {
  std::uint64_t values = 0;  // Weights, of all copies.
  double max = 0.0;          // Largest |weight - mean|.
  double squares = 0.0;      // Sum of (weight - mean)^2.

  void Add(const Divergence& other);
  double rms() const;
};

// `mean` and each of the `copies` copies in `in`, one after the other, are whole rows.
// Requires: in.size() == copies * mean.size(); copies >= 1; a row has a float.
Divergence MeanOfCopies(std::span<const float> in, std::size_t copies, const CopyRow& row,
                        std::span<float> mean);

}  // namespace embla::kernels
