// The messages between the coordinator and a node about moves: the values of MoveOrders and
// MoveReports in proto/embla/v1/coordinator.proto. Both may be lost, repeated, delayed and
// reordered without harm.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "core/base/ids.h"
#include "server/migration/move_ids.h"
#include "server/migration/unit_record.h"

namespace embla {

// Coordinator to node: what the store says, or once said, of a unit.
struct UnitOrder {
  UnitId unit = {};
  UnitRecord record = {};
  bool cancels = false;  // The record's open move is not wanted any more.
  // The source of the record's last move is lost for good: the target answers a cancel, and takes
  // over what the record says is its own.
  bool source_is_lost = false;
  // Open moves only: the target's device, and the rows that it has once the job is over.
  std::uint32_t target_device = 0;
  RowRun run = {};
  std::uint64_t bytes_per_second = 0;  // Limit for all moves of the source together; 0: no limit.
  // The node has said that it owns the unit, and does not by the record: it keeps the rows aside
  // and answers kSettled.
  bool settles = false;
  // The record's table only counts: the rows of its units that are kept aside are dropped.
  bool drops_aside = false;
  // The coordinator's plan when it sent the order: of what the record says, it knows.
  PlanVersion plan{};
  bool operator==(const UnitOrder&) const = default;
};

// Node to coordinator.
struct UnitReport {
  enum class Kind : std::uint8_t {
    kHandedOver,  // See ReportKind.
    kReady,       // See ReportKind.
    kRefused,     // See ReportKind.
    kAborted,     // See ReportKind.
    kReadRecord,  // Tell this node the unit's record, even if it is no end of the last move.
    kProgress,    // The counters only.
    kSettled,     // An order that settles was carried out.
  };

  UnitId unit = {};
  Kind kind = Kind::kProgress;
  MoveId move{};
  std::string message = {};      // Reason for kRefused and kAborted.
  std::uint64_t bytes_sent = 0;  // The source: of this move so far.
  // The source, once it is over: how long the unit's updates were refused.
  absl::Duration frozen = absl::ZeroDuration();
  bool operator==(const UnitReport&) const = default;
};

}  // namespace embla
