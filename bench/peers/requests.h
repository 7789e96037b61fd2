// Requests that every peer is asked, and the work that a client does for a peer which expects
// distinct rows: sort, drop duplicates, sum the gradients of a row, put rows where they belong.
//
// The rows of all tables lie in one array, one table after the other, so that a row has one number
// from 0 to tables * rows - 1. The optimizer's numbers are those of the Python drivers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace embla::peers {

inline constexpr float kLearningRate = 0.01F;
inline constexpr float kEpsilon = 1e-8F;

// A workload: what one request holds.
struct Shape {
  int tables = 1;
  std::int64_t rows = 0;  // Per table.
  int dim = 0;
  int ids = 0;            // Per table.
  int bag = 1;            // Ids that are summed to one row of the result.
  bool is_bf16 = false;   // Else fp32, both in the table and on the way.
  double exponent = 0.0;  // Exponent of Zipf's law; 0: uniform.

  // Reads TABLES ROWS DIM IDS BAG DTYPE EXPONENT. None: they are not that.
  static std::optional<Shape> Parse(std::span<char* const> words);

  std::size_t ids_per_request() const { return static_cast<std::size_t>(tables) * ids; }
  std::size_t row_bytes() const { return static_cast<std::size_t>(dim) * (is_bf16 ? 2 : 4); }
  std::int64_t all_rows() const { return tables * rows; }
};

// The value that a row begins with, about -0.1 to 0.1.
inline float InitialValue(std::uint64_t row, int column) {
  const auto mixed = static_cast<std::uint32_t>(row * 31 + static_cast<std::uint64_t>(column) * 7);
  return static_cast<float>(mixed % 1021) * (0.2F / 1021.0F) - 0.1F;
}

// Writes the first bytes of a row, in the shape's number format.
void FillRow(const Shape& shape, std::uint64_t row, char* out);

// Row numbers of a few dozen requests, drawn from the shape's distribution by a fixed seed.
class Requests {
 public:
  explicit Requests(const Shape& shape);

  // The row numbers of the request `number` (modulo the count), table by table.
  std::span<const std::uint64_t> RowsOf(std::size_t number) const;

 private:
  std::size_t ids_per_request_;
  std::vector<std::uint64_t> rows_;
};

// The distinct rows of one request, ascending. Buffers are kept from request to request.
class DistinctRows {
 public:
  void Find(std::span<const std::uint64_t> rows);

  const std::vector<std::uint64_t>& rows() const { return rows_; }

  // `gradients_out`: the sum per distinct row of the gradients of the bags that it is in.
  // Requires: `gradients` has a row for each bag.
  void SumGradients(const Shape& shape, const float* gradients,
                    std::vector<float>& gradients_out) const;

  // `result`: one fp32 row per bag, the sum of its rows. `found`: bytes of the distinct rows.
  void Place(const Shape& shape, const char* found, std::vector<float>& result) const;

 private:
  std::vector<std::uint64_t> rows_;
  std::vector<std::uint64_t> sorted_;  // Row number in the upper half, position in the lower one.
  std::vector<std::uint64_t> buffer_;
  std::vector<std::uint32_t> place_;  // Place in rows_, by position in the request.
};

}  // namespace embla::peers
