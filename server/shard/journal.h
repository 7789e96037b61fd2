// The journal of a node: its decisions, from which its next process makes the node again.
// docs/journal_format.md.
//
// All records of a node lie in one log. Each is appended where it takes effect: when no device that
// is concerned runs anything else. So what is applied in the log's order gives the same rows.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "core/plan/table_spec.h"
#include "server/log/log_format.h"
#include "server/shard/decision.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class Journal {
 public:
  // Told once, on any thread, perhaps within the call. It must not wait. OK: the record and all
  // before it have reached the level that was asked for.
  using Done = std::function<void(const absl::Status&)>;

  virtual ~Journal() = default;

  // Errors, with which `done` is not called and nothing is in the log:
  //   ResourceExhausted  too much waits to be written, or the disk is full: slow down
  //   InvalidArgument    the record is too large
  //   Unavailable        the log cannot write any more
  // A record that is accepted and then lost is the last one: the log says Unavailable from there
  // on. At kNone nothing is written; plans and closed sessions are, and synced, at every level.
  // Requires: one plan at a time; nobody changes the decision's memory before it is written.
  virtual absl::Status Append(const Decision& decision, Durability level, Done done) = 0;
  // Appends, synced, and blocks until `done` is told. After an error the record may or may not be
  // in the log: the same again is safe for plans and closed sessions.
  absl::Status Write(const Decision& decision);
  // The level for decisions about a table that asks for `asked`; kNone: its rows are not written.
  virtual Durability LevelOf(TableDurability asked) const = 0;
  // Number of the next record, which rises: what a device has done lies before it, when the device
  // asks between two tasks.
  virtual std::uint64_t position() const = 0;
  // Whether updates are written at all.
  bool keeps_rows() const { return LevelOf(TableDurability::kNode) != Durability::kNone; }
};

// Whether updates of a table can be acknowledged as it asks for; `journal` is null without one.
// FailedPrecondition: the node writes no updates down, and the table wants them to be.
absl::Status CheckDurability(const TableSpec& spec, const Journal* journal);

}  // namespace embla
