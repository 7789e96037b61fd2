// The one record per unit in the state store, and the three changes a move makes to it, each one
// compare-and-put of the whole record. It orders a move (Opened) before anybody hears of it, and
// follows what nodes say has become of it: what hands a unit over is in the log of its owner.
//
// Values never repeat (move and epoch only grow), so a late put of an old coordinator cannot hit.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "server/migration/guards.h"
#include "server/migration/move_ids.h"

namespace embla {

// State of the unit's last move. kNone: there was none, or it has taken place.
enum class MovePhase : std::uint8_t { kNone, kOpen, kAborted };

struct UnitRecord {
  NodeId owner{};
  UnitEpoch epoch{1};
  MoveId committed{0};  // The move that made `owner` the owner.
  MoveId move{0};       // The last move.
  MovePhase phase = MovePhase::kNone;
  // Source of the last move. 0: no node had the rows any more, the unit began anew.
  NodeId source{};
  NodeId target{};  // The source: it is a move between devices of that node.
  bool operator==(const UnitRecord&) const = default;
};

// FailedPrecondition: the last move has not ended.
absl::StatusOr<UnitRecord> Opened(const UnitRecord& record, NodeId target);
// Opens a unit whose owner is lost with its rows: they begin at initial values.
absl::StatusOr<UnitRecord> OpenedAnew(const UnitRecord& record, NodeId target);
// FailedPrecondition, both: the record is not about `move`, or that is not open.
absl::StatusOr<UnitRecord> Aborted(const UnitRecord& record, MoveId move);
absl::StatusOr<UnitRecord> HandedOver(const UnitRecord& record, MoveId move,
                                      const Guards& guards = kAllGuards);

// Whether the last move is one between devices of a node: its owner and epoch do not change.
inline bool IsWithinNode(const UnitRecord& record) { return record.source == record.target; }

// Whether the last move brings the unit's initial values instead of its rows.
inline bool IsAnew(const UnitRecord& record) {
  return record.move != MoveId{0} && record.source == NodeId{0};
}

// Whether `move` has not taken place and never will: aborted, or a later move has been opened.
// False says nothing: the record may be old.
bool SaysAborted(const UnitRecord& record, MoveId move);

// Whether `a` is later in the unit's life than `b`. Epoch 0 stands for "not known" and is oldest.
bool IsNewer(const UnitRecord& a, const UnitRecord& b);

std::string ToString(const UnitRecord& record);

}  // namespace embla
