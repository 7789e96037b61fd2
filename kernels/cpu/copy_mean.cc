#include "kernels/copy_mean.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace embla::kernels {
namespace {

// One row: copy c of it is at first[c * stride].
class RowCopies {
 public:
  RowCopies(const float* first, std::size_t stride, std::size_t copies)
      : first_(first), stride_(stride), copies_(copies) {}

  bool Equal(std::size_t floats) const {
    for (std::size_t c = 1; c < copies_; ++c) {
      if (std::memcmp(first_, first_ + c * stride_, floats * sizeof(float)) != 0) return false;
    }
    return true;
  }

  bool SameBits(std::size_t i) const {
    const auto bits = std::bit_cast<std::uint32_t>(first_[i]);
    for (std::size_t c = 1; c < copies_; ++c) {
      if (std::bit_cast<std::uint32_t>(first_[c * stride_ + i]) != bits) return false;
    }
    return true;
  }

  float Mean(std::size_t i) const {
    if (SameBits(i)) return first_[i];
    float sum = first_[i];
    for (std::size_t c = 1; c < copies_; ++c) sum += first_[c * stride_ + i];
    return sum * (1.0f / static_cast<float>(copies_));
  }

  float Largest(std::size_t i) const {
    float largest = first_[i];
    for (std::size_t c = 1; c < copies_; ++c) {
      largest = std::max(largest, first_[c * stride_ + i]);
    }
    return largest;
  }

  void Measure(std::size_t i, float mean, Divergence& divergence) const {
    for (std::size_t c = 0; c < copies_; ++c) {
      const double distance = std::abs(double{first_[c * stride_ + i]} - double{mean});
      divergence.max = std::max(divergence.max, distance);
      divergence.squares += distance * distance;
    }
  }

 private:
  const float* first_;
  std::size_t stride_;
  std::size_t copies_;
};

}  // namespace

void Divergence::Add(const Divergence& other) {
  values += other.values;
  max = std::max(max, other.max);
  squares += other.squares;
}

double Divergence::rms() const {
  return values == 0 ? 0.0 : std::sqrt(squares / static_cast<double>(values));
}

Divergence MeanOfCopies(std::span<const float> in, std::size_t copies, const CopyRow& row,
                        std::span<float> mean) {
  Divergence divergence;
  divergence.values = std::uint64_t{mean.size() / row.floats} * row.weights * copies;
  for (std::size_t begin = 0; begin < mean.size(); begin += row.floats) {
    const RowCopies rows(in.data() + begin, mean.size(), copies);
    float* const out = mean.data() + begin;
    // Between two averagings most rows of a large table are touched by nobody.
    if (rows.Equal(row.floats)) {
      std::copy_n(in.data() + begin, row.floats, out);
      continue;
    }
    for (std::size_t i = 0; i < row.weights; ++i) {
      out[i] = rows.Mean(i);
      if (!rows.SameBits(i)) rows.Measure(i, out[i], divergence);
    }
    const std::size_t means = row.weights + row.counters;
    for (std::size_t i = row.weights; i < means; ++i) out[i] = rows.Largest(i);
    for (std::size_t i = means; i < row.floats; ++i) out[i] = rows.Mean(i);
  }
  return divergence;
}

}  // namespace embla::kernels
