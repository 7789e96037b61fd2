// Waits for SIGTERM or SIGINT in the main thread, so that no code runs in a signal handler.
#pragma once

#include <csignal>

namespace embla {

class StopSignal {
 public:
  // Blocks both signals, and ignores SIGPIPE, in this thread and in those it starts later: make
  // this before any thread.
  StopSignal();

  // Returns the number of the signal that came.
  int Wait() const;

 private:
  sigset_t signals_;
};

}  // namespace embla
