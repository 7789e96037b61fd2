#include "client/python/native/eviction_queue.h"

#include <utility>

namespace embla::python {

absl::Status EvictionQueue::Put(const client::EvictedRow& row) {
  OwnedEviction owned{.id = row.id,
                      .reason = row.reason,
                      .step = row.step,
                      .last_step = row.last_step,
                      .weights = {row.weights.begin(), row.weights.end()},
                      .state = {row.state.begin(), row.state.end()},
                      .missed = row.missed};
  const MutexLock lock(mu_);
  while (rows_.size() >= rows_max_ && !stopped_) changed_.Wait(mu_);
  if (stopped_) return absl::CancelledError("nobody reads the evictions any more");
  rows_.push_back(std::move(owned));
  changed_.NotifyAll();
  return absl::OkStatus();
}

void EvictionQueue::End(absl::Status status) {
  const MutexLock lock(mu_);
  end_ = std::move(status);
  changed_.NotifyAll();
}

void EvictionQueue::Stop() {
  const MutexLock lock(mu_);
  stopped_ = true;
  changed_.NotifyAll();
}

bool EvictionQueue::WaitFor(absl::Duration timeout) const {
  const absl::Time deadline = absl::Now() + timeout;
  const MutexLock lock(mu_);
  while (rows_.empty() && !end_.has_value()) {
    const absl::Duration rest = deadline - absl::Now();
    if (rest <= absl::ZeroDuration()) return false;
    changed_.WaitFor(mu_, rest);
  }
  return true;
}

absl::StatusOr<std::optional<OwnedEviction>> EvictionQueue::Take() {
  const MutexLock lock(mu_);
  if (!rows_.empty()) {
    std::optional<OwnedEviction> row(std::move(rows_.front()));
    rows_.pop_front();
    changed_.NotifyAll();
    return row;
  }
  if (!end_->ok()) return *end_;
  return std::optional<OwnedEviction>();
}

}  // namespace embla::python
