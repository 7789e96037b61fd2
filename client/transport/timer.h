// Runs functions at given times. Retries, deadlines and backoffs take their time from here, so that
// tests own it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/mutex.h"

namespace embla::client {

// Thread safety: every method may be called from any thread.
class Timer {
 public:
  using Id = std::uint64_t;  // Never 0.

  virtual ~Timer() = default;

  virtual absl::Time Now() const = 0;
  // Runs `function` once at `when`, or soon if that is past, on the timer's thread. It must not
  // block.
  virtual Id At(absl::Time when, std::function<void()> function) = 0;
  // When it returns, the function is not running and will not run. From within a function of the
  // timer it does not wait for that same function.
  virtual void Cancel(Id id) = 0;
};

// On the clock of the process, with a thread of its own. Calls that have not run when it is
// destroyed are dropped.
class ThreadTimer final : public Timer {
 public:
  ThreadTimer();
  ~ThreadTimer() override;

  absl::Time Now() const override { return Clock::Real().Now(); }
  Id At(absl::Time when, std::function<void()> function) override;
  void Cancel(Id id) override;

 private:
  void Run();

  Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  Id last_id_ ABSL_GUARDED_BY(mu_) = 0;
  Id running_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::pair<absl::Time, Id>, std::function<void()>> due_ ABSL_GUARDED_BY(mu_);
  std::map<Id, absl::Time> times_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // Last: it uses the others.
};

// Runs one function at the earliest of the times asked for, and perhaps once too often: the
// function looks itself what is due, and asks again for what is not. May be destroyed at any time,
// but not from within the function.
//
// Thread safety: every method may be called from any thread, and under locks that the function
// takes.
class Alarm {
 public:
  // `timer` is not owned; outlives this object.
  Alarm(Timer& timer, std::function<void()> function)
      : timer_(timer), function_(std::move(function)) {}
  ~Alarm();

  void NoLaterThan(absl::Time when);

 private:
  void Fire(std::uint64_t arming);

  Timer& timer_;
  const std::function<void()> function_;

  Mutex mu_;
  absl::Time next_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  std::uint64_t last_arming_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::uint64_t, Timer::Id> armed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla::client
