// Where a node keeps what it must not forget about its units: the control records of
// server/migration/unit_state.h.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "server/migration/move_ids.h"
#include "server/migration/unit_state.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class MoveLog {
 public:
  using Done = std::function<void(const absl::Status&)>;
  virtual ~MoveLog() = default;

  // `done` runs once, on any thread, perhaps within this call, and must not block. OK: the record
  // and all before it are as durable as this log makes them.
  //   ResourceExhausted  the record is not in the log and never will be: try again
  //   Unavailable        the log cannot write any more
  // Requires: `record` is a control record.
  virtual void AppendControl(const UnitId& unit, const LogRecord& record, Done done) = 0;
};

// Of a node whose rows do not survive its process either: there is nothing to keep.
class ForgetfulMoveLog final : public MoveLog {
 public:
  void AppendControl(const UnitId&, const LogRecord&, Done done) override {
    done(absl::OkStatus());
  }
};

}  // namespace embla
