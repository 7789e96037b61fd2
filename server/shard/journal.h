// The journal of a node: its decisions, from which its next process makes the node again.
// docs/journal_format.md.
//
// All records of a node lie in one log. Each is appended where it takes effect: when no device that
// is concerned runs anything else. So what is applied in the log's order gives the same rows.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "server/shard/decision.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class Journal {
 public:
  // Told once, on any thread, perhaps within the call. It must not wait. OK: the record and all
  // before it will be found by the process after this one, as far as the log's level promises.
  using Done = std::function<void(const absl::Status&)>;

  virtual ~Journal() = default;

  // Errors, with which `done` is not called and nothing is in the log:
  //   ResourceExhausted  too much waits to be written, or the disk is full: slow down
  //   InvalidArgument    the record is too large
  //   Unavailable        the log cannot write any more
  // A record that is accepted and then lost is the last one: the log says Unavailable from there
  // on. Plans, closed sessions and copies that are gone are synced at every level. Requires: one
  // plan at a time.
  virtual absl::Status Append(const Decision& decision, Done done) = 0;
  // Appends, and blocks until `done` is told. After an error the record may or may not be in the
  // log: the same again is safe for plans and closed sessions.
  absl::Status Write(const Decision& decision);
  // Tells of all that was appended before. Errors as for Append.
  virtual absl::Status AppendMarker(Done done) = 0;
  // Number of the next record, which rises: what a device has done lies before it, when the device
  // asks between two tasks.
  virtual std::uint64_t position() const = 0;
  // Whether updates are written at all.
  virtual bool keeps_rows() const = 0;
};

}  // namespace embla
