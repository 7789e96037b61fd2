// A node's knowledge of its units, told to the coordinator at each registration: a coordinator
// whose store was restored from an older copy learns from it who owns what.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/ids.h"
#include "server/migration/move_ids.h"

namespace embla {

struct UnitStanding {
  enum class State : std::uint8_t {
    kOwned = 1,       // Served here.
    kComing = 2,      // Rows of it are taken in, in `last_move`.
    kHandedOver = 3,  // In `last_move`; rows are kept until the new owner's are safe.
    kElsewhere = 4,
  };

  State state = State::kElsewhere;
  UnitEpoch epoch{0};   // kOwned: under which; kComing: of the source; kHandedOver: of the owner.
  MoveId last_move{0};  // The last move that the node knows of; 0: none.
  NodeId other{};       // kComing: where the rows are from; kHandedOver: the owner.
  bool operator==(const UnitStanding&) const = default;
};

// Row granules [granule_begin, granule_end) of a column cut.
struct UnitStandings {
  TableId table{};
  std::uint32_t column_granule = 0;
  std::uint32_t granule_begin = 0;
  std::uint32_t granule_end = 0;
  UnitStanding standing;
  std::uint32_t device = 0;  // kOwned, kComing: where the rows lie; of group 0.
  bool operator==(const UnitStandings&) const = default;
};

}  // namespace embla
