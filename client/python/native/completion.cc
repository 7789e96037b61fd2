#include "client/python/native/completion.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <sys/eventfd.h>

#include "core/base/clock.h"
#include "core/base/mutex.h"

namespace embla::python {
namespace {

// An event descriptor of 0 can take this: eventfd_write fails at 2^64 - 1 only.
void MakeReadable(const FileDescriptor& event) { eventfd_write(event.number(), 1); }

}  // namespace

bool Completion::Set(absl::Status status) {
  std::vector<std::function<void(const absl::Status&)>> next;
  {
    const MutexLock lock(mu_);
    if (done_) return false;
    done_ = true;
    status_ = status;
    next = std::exchange(next_, {});
    if (readable_.is_open()) MakeReadable(readable_);
    // Under the lock: a waiter may destroy this object as soon as it sees done_.
    changed_.NotifyAll();
  }
  for (const auto& call : next) call(status);
  return true;
}

bool Completion::done() const {
  const MutexLock lock(mu_);
  return done_;
}

absl::Status Completion::status() const {
  const MutexLock lock(mu_);
  return status_;
}

bool Completion::WaitFor(absl::Duration timeout) const {
  const absl::Time deadline = Clock::Real().Now() + timeout;
  const MutexLock lock(mu_);
  while (!done_) {
    const absl::Duration rest = deadline - Clock::Real().Now();
    if (rest <= absl::ZeroDuration()) return false;
    // Clocks cannot add an infinite duration.
    changed_.WaitFor(mu_, std::min(rest, absl::Hours(1)));
  }
  return true;
}

void Completion::Then(std::function<void(const absl::Status&)> next) {
  absl::Status status;
  {
    const MutexLock lock(mu_);
    if (!done_) {
      next_.push_back(std::move(next));
      return;
    }
    status = status_;
  }
  next(status);
}

absl::StatusOr<int> Completion::ReadableDescriptor() {
  const MutexLock lock(mu_);
  if (!readable_.is_open()) {
    readable_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!readable_.is_open()) return absl::ErrnoToStatus(errno, "eventfd");
    if (done_) MakeReadable(readable_);
  }
  return readable_.number();
}

}  // namespace embla::python
