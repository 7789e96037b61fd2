// Items on their way to Python, read by a thread of their own. It puts items in and waits where
// there are enough, so it never needs the GIL; Python takes them out.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <nanobind/nanobind.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/python/native/errors.h"
#include "client/python/native/fork_guard.h"
#include "client/python/native/waiting.h"
#include "core/base/clock.h"
#include "core/base/mutex.h"

namespace embla::python {

// Thread safety: every method may be called from any thread.
template <typename Item>
class ItemQueue {
 public:
  explicit ItemQueue(std::size_t items_max) : items_max_(items_max) {}

  // Waits while there are items_max items. Cancelled: the reader has stopped.
  absl::Status Put(Item item) {
    const MutexLock lock(mu_);
    while (items_.size() >= items_max_ && !stopped_) changed_.Wait(mu_);
    if (stopped_) return absl::CancelledError("nobody reads any more");
    items_.push_back(std::move(item));
    changed_.NotifyAll();
    return absl::OkStatus();
  }

  // There will be no more items, for this reason.
  void End(absl::Status status) {
    const MutexLock lock(mu_);
    end_ = std::move(status);
    changed_.NotifyAll();
  }

  // The reader wants no more: ends the stream.
  void Stop() {
    const MutexLock lock(mu_);
    stopped_ = true;
    changed_.NotifyAll();
  }

  // Whether Take returns at once; waits for that, at most so long.
  bool WaitFor(absl::Duration timeout) const {
    const absl::Time deadline = Clock::Real().Now() + timeout;
    const MutexLock lock(mu_);
    while (items_.empty() && !end_.has_value()) {
      const absl::Duration rest = deadline - Clock::Real().Now();
      if (rest <= absl::ZeroDuration()) return false;
      changed_.WaitFor(mu_, rest);
    }
    return true;
  }

  // The next item; none at the end, or its error. Requires that WaitFor returned true, and one
  // reader.
  absl::StatusOr<std::optional<Item>> Take() {
    const MutexLock lock(mu_);
    if (!items_.empty()) {
      std::optional<Item> item(std::move(items_.front()));
      items_.pop_front();
      changed_.NotifyAll();
      return item;
    }
    if (!end_->ok()) return *end_;
    return std::optional<Item>();
  }

 private:
  const std::size_t items_max_;
  mutable Mutex mu_;
  mutable CondVar changed_;
  std::deque<Item> items_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
};

// One reading, which runs in its thread until it is over or this object is destroyed.
//
// Thread safety: by the GIL, which every method requires.
template <typename Item>
class Reading {
 public:
  // `read` puts items into the queue until it ends or a Put fails.
  Reading(std::size_t items_max, std::function<absl::Status(ItemQueue<Item>&)> read)
      : queue_(std::make_shared<ItemQueue<Item>>(items_max)) {
    std::thread([queue = queue_, read = std::move(read)]() mutable {
      absl::Status status = read(*queue);
      read = nullptr;  // The client that it holds is given back before anybody hears of the end.
      queue->End(std::move(status));
    }).detach();
  }
  ~Reading() {
    if (!fork_guard_.forked()) queue_->Stop();
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  // Waits, interruptibly, for the next item. Raises StopIteration at the end, or the error.
  Item Next() {
    if (fork_guard_.forked()) {
      RaiseNamed("ForkedClientError", "the reading was begun before this process was forked");
    }
    WaitInterruptibly([this](absl::Duration timeout) { return queue_->WaitFor(timeout); },
                      std::nullopt);
    absl::StatusOr<std::optional<Item>> item = queue_->Take();
    Check(item.status());
    if (!item->has_value()) throw nanobind::stop_iteration();
    return **std::move(item);
  }

 private:
  const ForkGuard fork_guard_;
  const std::shared_ptr<ItemQueue<Item>> queue_;
};

}  // namespace embla::python
