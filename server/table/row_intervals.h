// A set of rows as few intervals: which of a slice's rows are here while its units come and go.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace embla {

struct RowInterval {
  std::int64_t begin = 0;
  std::int64_t end = 0;  // Exclusive.

  bool Contains(std::int64_t row) const { return begin <= row && row < end; }
  bool operator==(const RowInterval&) const = default;
};

// A value; not thread safe.
class RowIntervals {
 public:
  RowIntervals() = default;
  explicit RowIntervals(RowInterval rows) { Insert(rows); }

  void Insert(RowInterval rows);
  void Erase(RowInterval rows);

  bool empty() const { return intervals_.empty(); }
  // O(log intervals).
  bool Contains(std::int64_t row) const {
    return row != std::numeric_limits<std::int64_t>::max() && ContainsAll({row, row + 1});
  }
  // Requires: `rows` is not empty.
  bool ContainsAll(RowInterval rows) const;
  bool Intersects(RowInterval rows) const;

  // The rows that are in both.
  RowIntervals CommonWith(const RowIntervals& other) const;

  // Ascending, with gaps between them.
  std::span<const RowInterval> intervals() const { return intervals_; }
  bool operator==(const RowIntervals&) const = default;

 private:
  std::vector<RowInterval> intervals_;
};

}  // namespace embla
