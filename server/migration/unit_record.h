// The one record per unit in the state store, and the four changes a move makes to it. Each change
// is one compare-and-put of the whole record; Committed is the only commit point of a move.
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

// State of the unit's last move. kNone: there was none, or it is committed and cleaned up.
enum class MovePhase : std::uint8_t { kNone, kOpen, kAborted, kCommitted };

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
absl::StatusOr<UnitRecord> Opened(const UnitRecord& record, NodeId target,
                                  const Guards& guards = kAllGuards);
// Opens a unit whose owner is lost with its rows: they begin at initial values.
absl::StatusOr<UnitRecord> OpenedAnew(const UnitRecord& record, NodeId target);
// FailedPrecondition, all three: the record is not about `move` in the phase the change needs.
absl::StatusOr<UnitRecord> Aborted(const UnitRecord& record, MoveId move);
absl::StatusOr<UnitRecord> Committed(const UnitRecord& record, MoveId move,
                                     const Guards& guards = kAllGuards);
absl::StatusOr<UnitRecord> Cleaned(const UnitRecord& record, MoveId move);

// Whether the last move is one between devices of a node: its owner and epoch do not change.
inline bool IsWithinNode(const UnitRecord& record) { return record.source == record.target; }

// Whether the last move brings the unit's initial values instead of its rows.
inline bool IsAnew(const UnitRecord& record) {
  return record.move != MoveId{0} && record.source == NodeId{0};
}

// Whether `move` can no longer commit: aborted, or a later move has been opened or committed.
// False says nothing: the record may be old.
bool SaysEndedWithoutCommit(const UnitRecord& record, MoveId move);

// Whether `a` is later in the unit's life than `b`. Epoch 0 stands for "not known" and is oldest.
bool IsNewer(const UnitRecord& a, const UnitRecord& b);

std::string ToString(const UnitRecord& record);

}  // namespace embla
