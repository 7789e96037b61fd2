#include "server/collective/meeting.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace embla {

absl::Status Meeting::AbortedStatus() {
  return absl::AbortedError("a device of this node has left the collective");
}

absl::Status Meeting::Wait() {
  MutexLock lock(mu_);
  if (aborted_) return AbortedStatus();
  const std::uint64_t round = round_;
  if (++waiting_ == size_) {
    waiting_ = 0;
    ++round_;
    all_here_.NotifyAll();
    return absl::OkStatus();
  }
  while (round_ == round && !aborted_) all_here_.Wait(mu_);
  return round_ == round ? AbortedStatus() : absl::OkStatus();
}

void Meeting::Abort() {
  MutexLock lock(mu_);
  aborted_ = true;
  all_here_.NotifyAll();
}

bool Meeting::aborted() const {
  MutexLock lock(mu_);
  return aborted_;
}

absl::Status Seat::Publish(const Contribution& contribution) const {
  meeting_->contribution(rank_) = contribution;
  return meeting_->Wait();
}

absl::Status Seat::Finish(const absl::Status& status) const {
  EMBLA_RETURN_IF_ERROR(meeting_->Wait());
  return status;
}

absl::Status Seat::CheckSameVerb() const {
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (At(r).verb == At(rank_).verb) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", r, " called another verb than rank ", rank_));
  }
  return absl::OkStatus();
}

absl::Status Seat::CheckSize(const char* what, std::uint32_t rank, std::size_t got,
                             std::size_t want) const {
  if (got == want) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " of rank ", rank, " has ", got, " floats, expected ", want));
}

absl::Status Seat::CheckCounts(std::span<const std::size_t> counts) const {
  EMBLA_RETURN_IF_ERROR(CheckSameVerb());
  EMBLA_RETURN_IF_ERROR(CheckSize("counts", rank_, counts.size(), size()));
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (std::equal(counts.begin(), counts.end(), At(r).counts.begin(), At(r).counts.end())) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", r, " has other counts than rank ", rank_));
  }
  return absl::OkStatus();
}

absl::Status Seat::CheckAllToAll(std::size_t out_size,
                                 std::span<const std::size_t> receive_counts) const {
  EMBLA_RETURN_IF_ERROR(CheckSameVerb());
  EMBLA_RETURN_IF_ERROR(CheckSize("receive_counts", rank_, receive_counts.size(), size()));
  EMBLA_RETURN_IF_ERROR(CheckSize("AllToAll output", rank_, out_size, Total(receive_counts)));
  for (std::uint32_t r = 0; r < size(); ++r) {
    const Contribution& from = At(r);
    EMBLA_RETURN_IF_ERROR(CheckSize("send_counts", r, from.counts.size(), size()));
    EMBLA_RETURN_IF_ERROR(CheckSize("AllToAll input", r, from.in.size(), Total(from.counts)));
    EMBLA_RETURN_IF_ERROR(CheckSize("AllToAll piece", r, from.counts[rank_], receive_counts[r]));
  }
  return absl::OkStatus();
}

absl::Status MaxOfAll(const Seat& seat, std::int32_t in, std::int32_t& out) {
  EMBLA_RETURN_IF_ERROR(seat.Publish({.verb = Contribution::Verb::kMax, .value = in}));
  const absl::Status status = seat.CheckSameVerb();
  std::int32_t largest = in;
  for (std::uint32_t r = 0; r < seat.size(); ++r) largest = std::max(largest, seat.At(r).value);
  EMBLA_RETURN_IF_ERROR(seat.Finish(status));
  out = largest;
  return absl::OkStatus();
}

}  // namespace embla
