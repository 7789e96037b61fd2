#include "server/rpc/in_flight_budget.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace embla {

InFlightHolder HolderOf(SessionId session) { return {.has_session = true, .id = ToInt(session)}; }

InFlightHolder HolderOf(ConnectionId connection) {
  return {.has_session = false, .id = static_cast<std::uint64_t>(connection)};
}

InFlightHolder HolderOf(const UpdateBatch& update) {
  InFlightHolder holder = HolderOf(update.session);
  if (update.claim.has_value()) holder.table = update.claim->table;
  return holder;
}

absl::StatusOr<Hold> InFlightBudget::Take(const InFlightHolder& holder, std::size_t bytes) {
  {
    MutexLock lock(mu_);
    EMBLA_RETURN_IF_ERROR(Check(holder, bytes));
    ++taken_;
    held_ += bytes;
    if (!holder.has_session) held_by_strangers_ += bytes;
    if (holder.table != TableId{}) held_by_steps_ += bytes;
    by_holder_[holder] += bytes;
  }
  if (!holder.has_session) TakeBeside(ConnectionId{holder.id}, bytes);
  held_bytes_.Add(static_cast<double>(bytes));
  return Hold([this, holder, bytes] { GiveBack(holder, bytes); });
}

absl::Status InFlightBudget::Check(const InFlightHolder& holder, std::size_t bytes) const {
  const auto found = by_holder_.find(holder);
  const std::size_t own = found == by_holder_.end() ? 0 : found->second;
  const std::size_t all = holder.has_session ? held_ - held_by_strangers_ : held_by_strangers_;
  const std::size_t all_max = holder.has_session ? limits_.bytes_max : limits_.strangers_bytes_max;
  const std::size_t one_max = holder.has_session ? limits_.bytes_max : limits_.stranger_bytes_max;
  // One request with a session is always taken.
  if (holder.has_session && all == 0) return absl::OkStatus();
  if (holder.table != TableId{}) EMBLA_RETURN_IF_ERROR(CheckWaiting(own, bytes));
  if (own + bytes <= one_max && own + bytes <= all_max - std::min(all, all_max)) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "requests and replies in flight ", holder.has_session ? "" : "of those without a session ",
      "have ", all, " bytes of ", all_max, ", ", own, " of them this client's; ", bytes,
      " more are too many: read replies, ",
      holder.has_session ? "or slow down"
                         : absl::StrCat("ask for less than ", one_max, ", or open a session")));
}

absl::Status InFlightBudget::CheckWaiting(std::size_t own, std::size_t bytes) const {
  if (own == 0 || held_by_steps_ + bytes <= limits_.bytes_max / 2) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("contributions to synchronous steps that wait have ", held_by_steps_, " bytes, ",
                   own, " of them this client's for the table; ", bytes, " more would be beyond ",
                   limits_.bytes_max / 2, ": wait until steps are made"));
}

void InFlightBudget::GiveBack(const InFlightHolder& holder, std::size_t bytes) {
  {
    MutexLock lock(mu_);
    held_ -= bytes;
    if (!holder.has_session) held_by_strangers_ -= bytes;
    if (holder.table != TableId{}) held_by_steps_ -= bytes;
    const auto found = by_holder_.find(holder);
    found->second -= bytes;
    if (found->second == 0) by_holder_.erase(found);
  }
  if (!holder.has_session) GiveBackBeside(ConnectionId{holder.id}, bytes);
  held_bytes_.Add(-static_cast<double>(bytes));
}

std::uint64_t InFlightBudget::taken() const {
  MutexLock lock(mu_);
  return taken_;
}

std::size_t InFlightBudget::held() const {
  MutexLock lock(mu_);
  return held_;
}

}  // namespace embla
