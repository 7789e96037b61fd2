// Workload of the GPU benches: tables, batches of ids, and the bytes that must move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/optimizer_step.h"
#include "kernels/row_kernels.h"

namespace embla::bench {

// Tables of one size, one after the other in one piece of memory: slot t * rows + id.
struct Workload {
  std::string name;
  std::uint32_t tables = 1;
  std::uint32_t rows = 0;  // Rows of each table.
  std::uint32_t dim = 0;
  kernels::Element element = kernels::Element::kFloat32;
  std::uint32_t bags = 0;  // Bags of each table in a batch.
  // Ids of a bag, which are pooled; 0: bags are single ids, whose rows are gathered.
  std::uint32_t bag_length = 0;
  double alpha = 0.0;      // Ids by a power law, the hot ones first; 0: uniform.
  double hot_share = 0.0;  // Share of the ids that are replaced by id 0.
  std::string aim;         // From a document, for the report.

  bool pooled() const { return bag_length != 0; }
  std::size_t ids_of_table() const { return std::size_t{bags} * (pooled() ? bag_length : 1); }
  std::size_t ids() const { return tables * ids_of_table(); }
  std::size_t outputs() const { return std::size_t{tables} * bags; }
  std::uint32_t slots() const { return tables * rows; }
  std::size_t row_bytes() const { return kernels::RowBytes(element, dim); }
};

// Rows and bags divided by `divisor`, at least a few: for small GPUs and for tests.
Workload Scaled(Workload workload, std::uint32_t divisor);

// A batch's slots, table after table.
std::vector<std::uint32_t> DrawSlots(const Workload& workload, std::uint64_t seed);

// The slots without repeats, ascending.
std::vector<std::uint32_t> Unique(std::span<const std::uint32_t> slots);

// Bytes that a batch moves through the GPU's memory.
struct MovedBytes {
  double floor = 0.0;    // Each touched row once, in whole sectors of 32 bytes.
  double nominal = 0.0;  // A row for every id.

  MovedBytes& operator+=(const MovedBytes& other) {
    floor += other.floor;
    nominal += other.nominal;
    return *this;
  }
};

// floor = rows + ids * 4 + (bags + 1) * 4 + outputs in fp32, where rows are those touched, once
// each; nominal: one per id.
MovedBytes LookupBytes(const Workload& workload, std::span<const std::uint32_t> slots);
// floor = ids * 4 + gradients in fp32 + 2 * (rows and their state), where gradients are one per bag
// or id; nominal: a gradient, a row and its state per id. Sorting is not counted.
MovedBytes UpdateBytes(const Workload& workload, OptimizerKind rule,
                       std::span<const std::uint32_t> slots);

}  // namespace embla::bench
