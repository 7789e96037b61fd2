// Callers that wait until all replicas that count have their updates; and, for a limited time,
// while a replica that does not count yet is so far behind that it would never catch up.
#include <algorithm>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/shard/replicator.h"

namespace embla {
namespace {

absl::Status StoppedStatus() { return absl::UnavailableError("the node is shutting down"); }

}  // namespace

void Replicator::BeginStop() {
  std::list<Waiter> waiters;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    waiters.swap(waiters_);
    changed_.NotifyAll();
  }
  for (const Waiter& waiter : waiters) waiter.done(StoppedStatus());
}

void Replicator::Wait(std::vector<TableOrder> orders, absl::Time deadline,
                      std::function<void(absl::Status)> done) {
  const absl::Time now = options_.clock->Now();
  Waiter waiter{std::move(orders), deadline, now + std::min(options_.timeout, (deadline - now) / 2),
                std::move(done)};
  std::optional<absl::Status> outcome;
  {
    MutexLock lock(mu_);
    outcome = stopping_ ? StoppedStatus() : OutcomeOf(waiter, now);
    if (!outcome.has_value()) {
      if (NextLook(waiter, now) < looks_at_) {
        work_ = true;
        changed_.NotifyAll();
      }
      waiters_.push_back(std::move(waiter));
      return;
    }
  }
  waiter.done(*outcome);
}

std::optional<absl::Status> Replicator::OutcomeOf(const Waiter& waiter, absl::Time now) const {
  const bool may_wait = now < waiter.deadline;
  for (const auto& [id, order] : waiter.orders) {
    const auto table = tables_.find(id);
    if (table != tables_.end() && !table->second.is_planned) {
      if (may_wait) return std::nullopt;
      return absl::UnavailableError(absl::StrCat(
          "a new plan of table ", ToInt(id), " is being installed; send the same update again"));
    }
    if (table == tables_.end() || table->second.is_outgoing || !table->second.has_begun) {
      return absl::FailedPreconditionError(
          absl::StrCat("the primary copy of table ", ToInt(id),
                       " is on another node now; send the same update there"));
    }
    for (const StreamPtr& stream : table->second.streams) {
      if (!stream->is_counted || stream->is_gone || stream->acked >= order) continue;
      if (may_wait) return std::nullopt;
      return absl::UnavailableError(
          absl::StrCat("node ", stream->node.name,
                       ", which has a copy of the table, has not confirmed the "
                       "update before the deadline; send the same update again"));
    }
  }
  if (now < waiter.held_until && IsHeld(waiter)) return std::nullopt;
  return absl::OkStatus();
}

bool Replicator::IsHeld(const Waiter& waiter) const {
  return std::ranges::any_of(waiter.orders, [this](const TableOrder& order) {
    const auto table = tables_.find(order.first);
    return table != tables_.end() &&
           std::ranges::any_of(table->second.streams,
                               [this](const StreamPtr& stream) { return IsTooFarBehind(*stream); });
  });
}

// A whole copy has to come so near that it may count.
bool Replicator::IsTooFarBehind(const Stream& stream) const {
  if (stream.is_counted || !stream.probed) return false;
  const bool is_whole = !stream.copying.has_value() && !stream.need_snapshot;
  if (is_whole) return stream.backlog.size() > kCaughtUpBehindMax;
  return stream.backlog.size() > std::min(options_.copy_behind_max, options_.backlog_max / 2) ||
         stream.backlog_bytes >
             std::min(options_.copy_behind_bytes_max, options_.backlog_bytes_max / 2);
}

absl::Time Replicator::FinishWaiters() {
  const absl::Time now = options_.clock->Now();
  absl::Time next_deadline = absl::InfiniteFuture();
  std::vector<std::pair<std::function<void(absl::Status)>, absl::Status>> finished;
  {
    MutexLock lock(mu_);
    for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
      std::optional<absl::Status> outcome = OutcomeOf(*waiter, now);
      if (!outcome.has_value()) {
        next_deadline = std::min(next_deadline, NextLook(*waiter, now));
        ++waiter;
        continue;
      }
      finished.emplace_back(std::move(waiter->done), *std::move(outcome));
      waiter = waiters_.erase(waiter);
    }
  }
  for (const auto& [done, status] : finished) done(status);
  return next_deadline;
}

}  // namespace embla
