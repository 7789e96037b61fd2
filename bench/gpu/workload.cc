#include "bench/gpu/workload.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace embla::bench {
namespace {

constexpr std::size_t kSectorBytes = 32;

// Returns the bytes of all sectors that a row touches: rows of `bytes` without gaps, from an
// aligned address on.
double SectorsOf(std::uint32_t slot, std::size_t bytes) {
  if (bytes == 0) return 0.0;
  const std::size_t begin = slot * bytes / kSectorBytes;
  const std::size_t end = (slot * bytes + bytes - 1) / kSectorBytes + 1;
  return static_cast<double>((end - begin) * kSectorBytes);
}

// k in [1, rows] with density k^-alpha, by inverting the distribution; less 1. alpha is not 1.
std::uint32_t PowerLawId(std::uint32_t rows, double alpha, double uniform) {
  const double gamma = 1.0 - alpha;
  const double most = std::pow(static_cast<double>(rows), gamma);
  const double k = std::pow(uniform * (most - 1.0) + 1.0, 1.0 / gamma);
  return std::min(static_cast<std::uint32_t>(k), rows) - 1;
}

}  // namespace

Workload Scaled(Workload workload, std::uint32_t divisor) {
  constexpr std::uint32_t kLeast = 3;
  workload.rows = std::max(workload.rows / divisor, kLeast);
  workload.bags = std::max(workload.bags / divisor, kLeast);
  return workload;
}

std::vector<std::uint32_t> DrawSlots(const Workload& workload, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto unit = [&] { return static_cast<double>(random() >> 11) * 0x1.0p-53; };
  std::vector<std::uint32_t> slots;
  slots.reserve(workload.ids());
  for (std::uint32_t t = 0; t < workload.tables; ++t) {
    for (std::size_t i = 0; i < workload.ids_of_table(); ++i) {
      auto id = static_cast<std::uint32_t>(random() % workload.rows);
      if (workload.alpha != 0.0) id = PowerLawId(workload.rows, workload.alpha, unit());
      if (workload.hot_share != 0.0 && unit() < workload.hot_share) id = 0;
      slots.push_back(t * workload.rows + id);
    }
  }
  return slots;
}

std::vector<std::uint32_t> Unique(std::span<const std::uint32_t> slots) {
  std::vector<std::uint32_t> unique(slots.begin(), slots.end());
  std::sort(unique.begin(), unique.end());
  unique.erase(std::unique(unique.begin(), unique.end()), unique.end());
  return unique;
}

MovedBytes LookupBytes(const Workload& workload, std::span<const std::uint32_t> slots) {
  const std::size_t numbers = slots.size() + workload.outputs() + 1;
  const double rest = static_cast<double>(numbers * sizeof(std::uint32_t) +
                                          workload.outputs() * workload.dim * sizeof(float));
  MovedBytes bytes{rest, rest};
  for (const std::uint32_t slot : Unique(slots)) {
    bytes.floor += SectorsOf(slot, workload.row_bytes());
  }
  bytes.nominal += static_cast<double>(slots.size() * workload.row_bytes());
  return bytes;
}

MovedBytes UpdateBytes(const Workload& workload, OptimizerKind rule,
                       std::span<const std::uint32_t> slots) {
  const std::size_t element_state =
      std::size_t{kernels::ElementStateArrays(rule)} * workload.dim * sizeof(float);
  const std::size_t row_state = kernels::RowStateFloats(rule) * sizeof(float);
  const double numbers = static_cast<double>(slots.size() * sizeof(std::uint32_t));
  const std::size_t gradient = workload.dim * sizeof(float);
  MovedBytes bytes{numbers + static_cast<double>(workload.outputs() * gradient),
                   numbers + static_cast<double>(slots.size() * gradient)};
  for (const std::uint32_t slot : Unique(slots)) {
    bytes.floor += 2.0 * (SectorsOf(slot, workload.row_bytes()) + SectorsOf(slot, element_state) +
                          SectorsOf(slot, row_state));
  }
  bytes.nominal +=
      2.0 * static_cast<double>(slots.size() * (workload.row_bytes() + element_state + row_state));
  return bytes;
}

}  // namespace embla::bench
