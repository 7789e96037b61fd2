// The coordinator's part of one unit's move, as pure code. All it knows that matters is the record
// in the store; whatever it forgets by dying, the two ends tell it again.
//
// Any number of coordinators may believe to be in charge: each changes the record by
// compare-and-put.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "core/base/ids.h"
#include "server/migration/guards.h"
#include "server/migration/move_messages.h"
#include "server/migration/unit_record.h"
#include "server/migration/unit_standing.h"

namespace embla {

struct CoordinatedUnit {
  UnitRecord record;  // The last read; epoch 0: none yet.
  bool operator==(const CoordinatedUnit&) const = default;

  CoordinatedUnit() { record.epoch = UnitEpoch{0}; }
};

struct StoredRecord {  // The store's record: after a read, and after a put, hit or miss.
  UnitRecord record;
};
struct StartMove {
  NodeId target{};
  bool is_anew = false;  // The owner is lost: the unit begins at initial values.
};
struct CancelMove {             // By an operator, or because the move takes too long.
  bool source_is_lost = false;  // After a read of the store: the target's word will be final.
};
struct CoordinatorTick {};  // Now and then, while a move is not over.
struct ReportEvent {
  MoveReport report;
  // From a source whose directory was put back, or is a new one, since the move was opened: it does
  // not know what its predecessor has handed over, and the target is asked, too.
  bool is_of_next_life = false;
};
using CoordinatorEvent =
    std::variant<StoredRecord, StartMove, CancelMove, CoordinatorTick, ReportEvent>;

struct PutToStore {  // StoredRecord follows.
  UnitRecord expected;
  UnitRecord desired;
};
struct ReadFromStore {};  // StoredRecord follows.
struct TellRecord {       // RecordEvent at the node.
  NodeId to{};
  UnitRecord record;
};
struct TellCancel {  // CancelEvent at the node.
  NodeId to{};
  UnitRecord record;
  bool source_is_lost = false;
};
using CoordinatorAction = std::variant<PutToStore, ReadFromStore, TellRecord, TellCancel>;

struct CoordinatorStep {
  CoordinatedUnit state;
  std::vector<CoordinatorAction> actions;
};

// An event that the record does not allow (start during a move, a report of an ended move) has no
// effect; who asked for a move sees that the record stays as it is.
CoordinatorStep StepCoordinator(CoordinatedUnit state, const CoordinatorEvent& event,
                                const Guards& guards = kAllGuards);

// A process of `node` whose directory was put back from a copy, or is a new one, does not know what
// its predecessors have handed over. It answers nobody before nothing speaks against what it has of
// any unit: no move of a predecessor can take place any more, since the target has said what became
// of it, and the node has let go of what is another node's. `source_is_lost`: the move of `record`,
// the unit's, is of a predecessor.
bool MayServe(const UnitRecord& record, NodeId node, const UnitStanding& standing,
              bool source_is_lost, const Guards& guards = kAllGuards);

}  // namespace embla
