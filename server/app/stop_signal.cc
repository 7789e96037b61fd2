#include "server/app/stop_signal.h"

#include <pthread.h>

#include "core/base/check.h"

namespace embla {

StopSignal::StopSignal() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  EMBLA_CHECK(pthread_sigmask(SIG_BLOCK, &signals_, nullptr) == 0);
  std::signal(SIGPIPE, SIG_IGN);
}

int StopSignal::Wait() const {
  int signal = 0;
  while (sigwait(&signals_, &signal) != 0) {
  }
  return signal;
}

}  // namespace embla
