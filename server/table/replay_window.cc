#include "server/table/replay_window.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace embla {

ReplayWindow::Verdict ReplayWindow::Classify(UpdateSeq seq) const {
  const std::uint64_t value = ToInt(seq);
  if (value < floor_) return Verdict::kApplied;
  if (value - floor_ >= kSize) return Verdict::kTooNew;
  return (words_[value % kSize / kWordBits] & BitOf(value)) != 0 ? Verdict::kApplied
                                                                 : Verdict::kNew;
}

void ReplayWindow::RaiseFloor(UpdateSeq first_incomplete) {
  const std::uint64_t floor = ToInt(first_incomplete);
  if (floor <= floor_) return;
  if (floor - floor_ >= kSize) {
    words_.fill(0);
  } else {
    for (std::uint64_t seq = floor_; seq < floor; ++seq) *WordOf(seq) &= ~BitOf(seq);
  }
  floor_ = floor;
}

void ReplayWindow::Record(UpdateSeq seq) {
  EMBLA_CHECK(Classify(seq) == Verdict::kNew);
  *WordOf(ToInt(seq)) |= BitOf(ToInt(seq));
}

absl::StatusOr<bool> ReplayWindows::IsApplied(SessionId session, UpdateSeq seq,
                                              UpdateSeq first_incomplete, absl::Time now) {
  MutexLock lock(mu_);
  auto it = sessions_.find(ToInt(session));
  if (it == sessions_.end()) {
    EMBLA_RETURN_IF_ERROR(MakeRoom(now));
    it = sessions_.try_emplace(ToInt(session)).first;
  }
  it->second.last_used = now;
  ReplayWindow& window = it->second.window;
  window.RaiseFloor(first_incomplete);
  switch (window.Classify(seq)) {
    case ReplayWindow::Verdict::kNew:
      return false;
    case ReplayWindow::Verdict::kApplied:
      return true;
    case ReplayWindow::Verdict::kTooNew:
      break;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("session ", ToInt(session), ": update ", ToInt(seq), " is ",
                   ToInt(seq) - ToInt(window.floor()), " ahead of the oldest unfinished one, ",
                   ToInt(window.floor()), "; at most ", ReplayWindow::kSize - 1,
                   " may be: too many updates in flight, wait for some"));
}

void ReplayWindows::Record(SessionId session, UpdateSeq seq) {
  MutexLock lock(mu_);
  const auto it = sessions_.find(ToInt(session));
  EMBLA_CHECK(it != sessions_.end());
  it->second.window.Record(seq);
}

std::size_t ReplayWindows::sessions() const {
  MutexLock lock(mu_);
  return sessions_.size();
}

absl::Status ReplayWindows::MakeRoom(absl::Time now) {
  if (sessions_.size() < options_.sessions_max) return absl::OkStatus();
  const auto idle_longest = std::min_element(
      sessions_.begin(), sessions_.end(),
      [](const auto& a, const auto& b) { return a.second.last_used < b.second.last_used; });
  if (idle_longest == sessions_.end() || now - idle_longest->second.last_used < options_.idle_min) {
    return absl::ResourceExhaustedError(
        absl::StrCat(sessions_.size(), " sessions have updated this table within ",
                     absl::FormatDuration(options_.idle_min), ", the limit is ",
                     options_.sessions_max, "; open fewer sessions"));
  }
  sessions_.erase(idle_longest);
  return absl::OkStatus();
}

}  // namespace embla
