// The messages between the two ends of a move and the coordinator. Every message states facts that
// stay true or become harmless: it may be lost, repeated, delayed and reordered without limit.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/ids.h"
#include "server/migration/move_ids.h"
#include "server/migration/unit_windows.h"

namespace embla {

// A unit's rows are cut into chunks, the same ones on every node. A chunk at version v holds every
// update of its rows up to v (and perhaps later ones, which a later version repeats).
// By chunk; 0: nothing held.
using ChunkVersions = std::vector<Lsn>;

// Target to source: what I hold, and how many chunks more I have room for. Acknowledges as well.
struct Pull {
  MoveId move{};
  UnitEpoch epoch{};  // Under which the source owns the unit.
  ChunkVersions held;
  std::uint32_t credit = 0;  // Chunks.
  bool resend = false;       // Nothing is on its way: send again what `held` lacks.
  bool operator==(const Pull&) const = default;
};

// Source to target: the rows of a chunk changed after `base`; all of them if base is 0. The rows
// follow in the encoding of core/rows; whoever receives them checks their CRC before this is a
// fact.
struct Chunk {
  MoveId move{};
  std::uint32_t chunk = 0;
  Lsn base{};
  Lsn version{};
  bool operator==(const Chunk&) const = default;
};

// Source to target, frozen: the cut. If the unit is handed over at it, nothing was or will be
// updated beyond `lsn` at the source.
struct FinalCut {
  MoveId move{};
  Lsn lsn{};
  ChunkVersions needed;      // By chunk, the last update that touched it.
  UnitWindows windows = {};  // Cut at the same lsn.
  // The chunks that the target may lack are on their way: it need not ask for them.
  bool chunks_follow = false;
  bool operator==(const FinalCut&) const = default;
};

// Target to source: all of that cut is staged. No lsn of a unit is given out twice, whatever dies
// (BeginProcess), so it names the cut.
struct Holds {
  MoveId move{};
  Lsn lsn{};
  bool operator==(const Holds&) const = default;
};

// Source to target: the unit is yours, as of that cut. It is synced at the source.
struct Release {
  MoveId move{};
  UnitEpoch epoch{};  // Under which the target owns the unit.
  Lsn lsn{};
  bool operator==(const Release&) const = default;
};

// Target to source: the unit is safe here, the rows that were kept are not needed.
struct Covered {
  MoveId move{};
  bool operator==(const Covered&) const = default;
};

enum class ReportKind : std::uint8_t {
  kHandedOver,  // Source or target: the move has taken place.
  kReady,       // Target of a unit that begins anew: its initial rows are staged.
  kRefused,     // Target: no room, or rows that cannot be taken in.
  kAborted,     // Source: the move will not take place. Target, if the source is lost: likewise.
};

// Either end to the coordinator.
struct MoveReport {
  ReportKind kind{};
  MoveId move{};
  bool operator==(const MoveReport&) const = default;
};

}  // namespace embla
