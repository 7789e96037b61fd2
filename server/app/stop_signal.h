// Waits for SIGTERM or SIGINT outside of signal handlers. The first one asks the program to stop; a
// second one, at any time from the program's start on, ends the process at once.
#pragma once

#include <csignal>
#include <memory>
#include <optional>

#include "absl/time/time.h"

namespace embla {

class StopSignal {
 public:
  // Blocks both signals in this thread and in those it starts later: make this before any thread.
  // Ignores SIGPIPE, and SIGXFSZ: a file at its size limit is a full disk, as the write says.
  StopSignal();

  // Returns the number of the signal that came.
  int Wait() const;
  // The same, or nothing after `timeout`.
  std::optional<int> WaitFor(absl::Duration timeout) const;

 private:
  struct First;

  const std::shared_ptr<First> first_;  // Shared with the thread that takes the signals.
};

}  // namespace embla
