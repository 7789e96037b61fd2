#include "server/app/stop_signal.h"

#include <pthread.h>
#include <unistd.h>

#include <thread>

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/mutex.h"

namespace embla {
namespace {

int TakeSignal(const sigset_t& signals) {
  int signal = 0;
  while (sigwait(&signals, &signal) != 0) {
  }
  return signal;
}

}  // namespace

struct StopSignal::First {
  Mutex mu;
  CondVar changed;
  int signal ABSL_GUARDED_BY(mu) = 0;  // 0: none yet.
};

StopSignal::StopSignal() : first_(std::make_shared<First>()) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  EMBLA_CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  // Until the process ends: while it stops, too.
  std::thread([signals, first = first_] {
    const int signal = TakeSignal(signals);
    {
      MutexLock lock(first->mu);
      first->signal = signal;
      first->changed.NotifyAll();
    }
    const int second = TakeSignal(signals);
    LogWarning("process", "ends at once, by a second signal signal=", second);
    _exit(128 + second);
  }).detach();
}

int StopSignal::Wait() const {
  MutexLock lock(first_->mu);
  while (first_->signal == 0) first_->changed.Wait(first_->mu);
  return first_->signal;
}

std::optional<int> StopSignal::WaitFor(absl::Duration timeout) const {
  MutexLock lock(first_->mu);
  // A wait that ends early asks once more than needed, which costs nothing.
  if (first_->signal == 0) first_->changed.WaitFor(first_->mu, timeout);
  return first_->signal == 0 ? std::nullopt : std::optional<int>(first_->signal);
}

}  // namespace embla
