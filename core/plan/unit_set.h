// A set of units of one table, as runs: a value. Units of a column granule whose row granules
// follow each other are one run, so a node's units, or what a contribution claims of them, are a
// few.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace embla {

class UnitSet {
 public:
  // Row granules [begin, end) of a column granule.
  struct Run {
    std::uint32_t column_granule = 0;
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    bool operator==(const Run&) const = default;
  };

  UnitSet() = default;
  // Requires: the run is not empty.
  explicit UnitSet(const Run& run);

  bool Has(std::uint32_t column_granule, std::uint32_t row_granule) const;
  void Include(const UnitSet& other);
  UnitSet Minus(const UnitSet& other) const;
  UnitSet And(const UnitSet& other) const;
  bool Meets(const UnitSet& other) const { return !And(other).empty(); }
  bool Covers(const UnitSet& other) const { return other.Minus(*this).empty(); }

  bool empty() const { return spans_.empty(); }
  std::uint64_t size() const;
  std::vector<Run> runs() const;  // Ascending by column granule, then by row granule.
  bool operator==(const UnitSet&) const = default;

 private:
  // Units are numbers here: the column granule, then the row granule, of which the last, 2^32 - 1,
  // is no unit's. So a span is of one column granule.
  struct Span {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    bool operator==(const Span&) const = default;
  };
  template <typename Keeps>
  static std::vector<Span> Combined(const UnitSet& a, const UnitSet& b, Keeps keeps);

  std::vector<Span> spans_;  // Ascending, apart from each other.
};

std::string ToString(const UnitSet& units);

}  // namespace embla
