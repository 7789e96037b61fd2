// Numbers a session's updates, and keeps those in flight within what servers remember.
//
// Thread safety: every method may be called from any thread.
#pragma once

#include <deque>
#include <functional>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/transport/timer.h"
#include "core/base/ids.h"
#include "core/base/mutex.h"

namespace embla::client {

class UpdateWindow {
 public:
  // Servers remember 256 updates of a session (server/migration/session_window.h).
  static constexpr std::uint64_t kSpanMax = 128;
  static constexpr std::size_t kWaitingMax = 4096;

  using Granted = std::function<void(absl::StatusOr<UpdateSeq>)>;

  // `timer` is not owned; outlives this object.
  explicit UpdateWindow(Timer& timer) : timer_(timer), alarm_(timer, [this] { Expire(); }) {}

  // Calls `granted` with the next number: at once, or when the oldest updates are done.
  // Errors: DeadlineExceeded, ResourceExhausted (too many wait already).
  void Enter(absl::Time deadline, Granted granted);
  // The update is over: acknowledged, or given up and never sent again.
  void Leave(UpdateSeq seq);

  // The smallest number that is not over.
  UpdateSeq first_incomplete();

 private:
  struct Waiting {
    absl::Time deadline;
    Granted granted;
  };
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return incomplete_.empty() || next_ - *incomplete_.begin() < kSpanMax;
  }
  UpdateSeq Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    incomplete_.insert(next_);
    return UpdateSeq{next_++};
  }
  void Expire();

  Timer& timer_;  // Not owned; outlives this object.

  Mutex mu_;
  std::uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
  std::set<std::uint64_t> incomplete_ ABSL_GUARDED_BY(mu_);
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  Alarm alarm_;  // Last: its function uses the others.
};

}  // namespace embla::client
