#include "bench/peers/requests.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string_view>

namespace embla::peers {
namespace {

constexpr std::size_t kRequestsMax = 64;
constexpr std::size_t kIdsMax = std::size_t{1} << 23;  // 64 MiB.
constexpr int kDigitBits = 11;
constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;
constexpr std::size_t kRadixSortMin = 1024;  // Fewer are sorted faster by comparison.
constexpr int kPositionBits = 32;

std::uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

float FromBf16(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

// Sorts by the upper half. Requires: the order is already that of the lower half.
void SortByRow(std::vector<std::uint64_t>& values, std::vector<std::uint64_t>& buffer) {
  if (values.size() < kRadixSortMin) {
    std::ranges::sort(values);
    return;
  }
  buffer.resize(values.size());
  const std::uint64_t largest = *std::ranges::max_element(values) >> kPositionBits;
  for (int shift = 0; shift < static_cast<int>(std::bit_width(largest)); shift += kDigitBits) {
    const auto digit = [shift](std::uint64_t value) {
      return (value >> (kPositionBits + shift)) & (kDigits - 1);
    };
    std::array<std::uint32_t, kDigits> begins{};
    for (const std::uint64_t value : values) ++begins[digit(value)];
    std::exclusive_scan(begins.begin(), begins.end(), begins.begin(), std::uint32_t{0});
    for (const std::uint64_t value : values) buffer[begins[digit(value)]++] = value;
    values.swap(buffer);
  }
}

template <typename Number>
void Add(const char* row, int dim, bool is_first, float* sum) {
  Number number;
  for (int i = 0; i < dim; ++i) {
    std::memcpy(&number, row + i * sizeof(Number), sizeof(Number));
    float value = 0.0F;
    if constexpr (sizeof(Number) == 2) {
      value = FromBf16(number);
    } else {
      value = number;
    }
    sum[i] = is_first ? value : sum[i] + value;
  }
}

// Cumulated weights of the ranks 1, 2, ... by Zipf's law.
std::vector<double> CumulatedWeights(const Shape& shape) {
  std::vector<double> weights(shape.exponent > 0.0 ? shape.rows : 0);
  double sum = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    sum += std::pow(static_cast<double>(i + 1), -shape.exponent);
    weights[i] = sum;
  }
  return weights;
}

}  // namespace

std::optional<Shape> Shape::Parse(std::span<char* const> words) {
  if (words.size() != 7) return std::nullopt;
  Shape shape;
  shape.tables = std::atoi(words[0]);
  shape.rows = std::atoll(words[1]);
  shape.dim = std::atoi(words[2]);
  shape.ids = std::atoi(words[3]);
  shape.bag = std::atoi(words[4]);
  shape.is_bf16 = std::string_view(words[5]) == "bf16";
  shape.exponent = std::atof(words[6]);
  const bool is_whole = shape.tables > 0 && shape.rows > 0 && shape.dim > 0 && shape.bag > 0;
  if (!is_whole || shape.ids < shape.bag || shape.ids % shape.bag != 0) return std::nullopt;
  return shape;
}

void FillRow(const Shape& shape, std::uint64_t row, char* out) {
  for (int i = 0; i < shape.dim; ++i) {
    const float value = InitialValue(row, i);
    const std::uint16_t rounded = ToBf16(value);
    if (shape.is_bf16) {
      std::memcpy(out + i * sizeof(rounded), &rounded, sizeof(rounded));
    } else {
      std::memcpy(out + i * sizeof(value), &value, sizeof(value));
    }
  }
}

Requests::Requests(const Shape& shape) : ids_per_request_(shape.ids_per_request()) {
  const std::size_t count = std::clamp<std::size_t>(kIdsMax / ids_per_request_, 4, kRequestsMax);
  std::mt19937_64 random(1);
  const std::vector<double> weights = CumulatedWeights(shape);
  const auto rows = static_cast<std::uint64_t>(shape.rows);
  // Hot rows are scattered over the table: this step visits every row once.
  std::uint64_t step = 2654435761 % rows;
  while (std::gcd(step, rows) != 1) ++step;
  rows_.resize(count * ids_per_request_);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    std::uint64_t row = random() % rows;
    if (!weights.empty()) {
      std::uniform_real_distribution<double> uniform(0.0, weights.back());
      const auto rank = std::ranges::lower_bound(weights, uniform(random)) - weights.begin();
      row = static_cast<std::uint64_t>(rank) * step % rows;
    }
    rows_[i] = i % ids_per_request_ / shape.ids * rows + row;
  }
}

std::span<const std::uint64_t> Requests::RowsOf(std::size_t number) const {
  const std::size_t count = rows_.size() / ids_per_request_;
  return std::span(rows_).subspan(number % count * ids_per_request_, ids_per_request_);
}

void DistinctRows::Find(std::span<const std::uint64_t> rows) {
  sorted_.resize(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) sorted_[i] = rows[i] << kPositionBits | i;
  SortByRow(sorted_, buffer_);
  rows_.clear();
  place_.resize(rows.size());
  for (const std::uint64_t value : sorted_) {
    const std::uint64_t row = value >> kPositionBits;
    if (rows_.empty() || rows_.back() != row) rows_.push_back(row);
    place_[static_cast<std::uint32_t>(value)] = static_cast<std::uint32_t>(rows_.size() - 1);
  }
}

void DistinctRows::SumGradients(const Shape& shape, const float* gradients,
                                std::vector<float>& gradients_out) const {
  const auto dim = static_cast<std::size_t>(shape.dim);
  gradients_out.resize(rows_.size() * dim);
  std::size_t done = 0;  // Distinct rows that have a sum.
  for (const std::uint64_t value : sorted_) {
    const std::uint32_t position = static_cast<std::uint32_t>(value);
    const float* gradient = gradients + position / shape.bag * dim;
    float* sum = gradients_out.data() + place_[position] * dim;
    if (place_[position] == done) {
      std::copy_n(gradient, dim, sum);
      ++done;
    } else {
      for (std::size_t i = 0; i < dim; ++i) sum[i] += gradient[i];
    }
  }
}

void DistinctRows::Place(const Shape& shape, const char* found, std::vector<float>& result) const {
  const auto dim = static_cast<std::size_t>(shape.dim);
  result.resize(place_.size() / shape.bag * dim);
  for (std::size_t i = 0; i < place_.size(); ++i) {
    const char* row = found + place_[i] * shape.row_bytes();
    float* sum = result.data() + i / shape.bag * dim;
    const bool is_first = i % shape.bag == 0;
    if (shape.is_bf16) {
      Add<std::uint16_t>(row, shape.dim, is_first, sum);
    } else {
      Add<float>(row, shape.dim, is_first, sum);
    }
  }
}

}  // namespace embla::peers
