// The numbers of a unit's life: who owned it when, and which attempt to move it a message is about.
#pragma once

#include <compare>
#include <cstdint>

#include "core/base/ids.h"

namespace embla {

enum class MoveId : std::uint64_t {};     // Attempts to move one unit, from 1; 0 is no move.
enum class UnitEpoch : std::uint64_t {};  // +1 at each change of owner, from 1; 0 owns nothing.
// Order of one unit's updates across all its owners; a fresh unit is at 1, 0 is "no rows at all".
enum class Lsn : std::uint64_t {};

// The smallest piece that ever moves. Row id to unit never changes, unit to owner does.
struct UnitId {
  TableId table{};
  std::uint32_t row_granule = 0;  // Row granule, or ZCH bucket.
  std::uint32_t column_granule = 0;
  auto operator<=>(const UnitId&) const = default;
};

// Rows [row_begin, row_end) of a table; of a ZCH table, slots.
struct RowRun {
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  bool operator==(const RowRun&) const = default;
};

template <typename Id>
constexpr Id Next(Id id) {
  return Id{ToInt(id) + 1};
}

}  // namespace embla
