// A node's log of what the next process must know of its units: the control records of
// server/migration/unit_state.h, and what they stand on. UnitReplay reads all of it back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"
#include "server/migration/move_ids.h"
#include "server/migration/move_messages.h"
#include "server/migration/unit_state.h"

namespace embla {

// All records of a node, those of its updates too, lie in one log in the order of the calls.
//
// Adopted, Folded, Reserved and Chunk are not waited for: what needs them lies behind them in the
// log, and its sync covers them. Their errors, after which the record is not in the log:
//   ResourceExhausted  try again
//   Unavailable        the log cannot write any more
//   InvalidArgument    the record is too large
// A log that takes one of them and loses it later takes nothing behind it: it says Unavailable
// from there on.
//
// Thread safety: every method may be called from any thread.
class MoveLog {
 public:
  using Done = std::function<void(const absl::Status&)>;
  virtual ~MoveLog() = default;

  // The unit was part of the table's rest, and has windows of its own from here on. Called on the
  // table's lead device, between two updates.
  virtual absl::Status AppendAdopted(const UnitId& unit, UnitEpoch epoch) = 0;
  // The unit's record has joined that of the table's rest. There, too.
  virtual absl::Status AppendFolded(const UnitId& unit, PlanVersion plan) = 0;
  // UnitHost::Reserve has made room.
  virtual absl::Status AppendReserved(const UnitId& unit, std::uint32_t device,
                                      const RowRun& run) = 0;
  // `rows` have been staged.
  virtual absl::Status AppendChunk(const UnitId& unit, const Chunk& chunk,
                                   std::span<const std::byte> rows) = 0;

  // An error, one of those above, says that the record is not in the log, and never will be. Else
  // `done` runs once, on any thread, perhaps within this call, and must not block. OK: the record
  // and all before it are as durable as this log makes them. Unavailable: the log cannot write any
  // more.
  // Requires: `record` is a control record.
  virtual absl::Status AppendControl(const UnitId& unit, const LogRecord& record, Done done) = 0;

  // Calls `done` once, on any thread, perhaps within this call: when a sync would take no longer
  // than usual, after one sync of what there is if that is much; whatever the status.
  virtual void SyncTail(Done done) = 0;
};

// For a node whose rows do not survive its process either: it keeps nothing.
class ForgetfulMoveLog final : public MoveLog {
 public:
  absl::Status AppendAdopted(const UnitId&, UnitEpoch) override { return absl::OkStatus(); }
  absl::Status AppendFolded(const UnitId&, PlanVersion) override { return absl::OkStatus(); }
  absl::Status AppendReserved(const UnitId&, std::uint32_t, const RowRun&) override {
    return absl::OkStatus();
  }
  absl::Status AppendChunk(const UnitId&, const Chunk&, std::span<const std::byte>) override {
    return absl::OkStatus();
  }
  absl::Status AppendControl(const UnitId&, const LogRecord&, Done done) override {
    done(absl::OkStatus());
    return absl::OkStatus();
  }
  void SyncTail(Done done) override { done(absl::OkStatus()); }
};

}  // namespace embla
