#include "server/table/replay_window.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "server/migration/step_session.h"

namespace embla {

absl::StatusOr<bool> ReplayWindows::IsApplied(SessionId session, UpdateSeq seq,
                                              UpdateSeq first_incomplete, absl::Time now) {
  MutexLock lock(mu_);
  auto it = sessions_.find(ToInt(session));
  if (it == sessions_.end()) {
    if (session != kStepSession) EMBLA_RETURN_IF_ERROR(MakeRoom(now));
    it = sessions_.try_emplace(ToInt(session)).first;
    it->second.window.session = session;
  }
  it->second.last_used = now;
  SessionWindow& window = it->second.window;
  window.RaiseFloor(first_incomplete);
  switch (window.Classify(seq)) {
    case SessionWindow::Verdict::kNew:
      return false;
    case SessionWindow::Verdict::kApplied:
      return true;
    case SessionWindow::Verdict::kTooNew:
      break;
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "session ", ToInt(session), ": update ", ToInt(seq), " is ", ToInt(seq) - ToInt(window.floor),
      " ahead of the oldest unfinished one, ", ToInt(window.floor), "; at most ",
      SessionWindow::kSize - 1, " may be: too many updates in flight, wait for some"));
}

void ReplayWindows::Record(SessionId session, UpdateSeq seq) {
  MutexLock lock(mu_);
  const auto it = sessions_.find(ToInt(session));
  EMBLA_CHECK(it != sessions_.end());
  it->second.window.Record(seq);
}

UpdateSeq ReplayWindows::FloorOf(SessionId session) const {
  MutexLock lock(mu_);
  const auto it = sessions_.find(ToInt(session));
  return it == sessions_.end() ? UpdateSeq{} : it->second.window.floor;
}

void ReplayWindows::Forget(const SessionSet& sessions) {
  MutexLock lock(mu_);
  absl::erase_if(sessions_,
                 [&](const auto& entry) { return sessions.Has(SessionId{entry.first}); });
}

void ReplayWindows::Import(const UnitWindows& windows, absl::Time now) {
  MutexLock lock(mu_);
  sessions_.clear();
  for (const SessionWindow& window : windows.sessions()) {
    sessions_[ToInt(window.session)] = {.window = window, .last_used = now};
  }
}

void ReplayWindows::Include(const UnitWindows& windows, absl::Time now) {
  MutexLock lock(mu_);
  for (const SessionWindow& window : windows.sessions()) {
    Session& session = sessions_[ToInt(window.session)];
    session.window.session = window.session;
    session.window.Include(window);
    session.last_used = now;
  }
}

UnitWindows ReplayWindows::Export() const {
  std::vector<SessionWindow> windows;
  {
    MutexLock lock(mu_);
    for (const auto& [id, session] : sessions_) windows.push_back(session.window);
  }
  std::sort(windows.begin(), windows.end(),
            [](const SessionWindow& a, const SessionWindow& b) { return a.session < b.session; });
  absl::StatusOr<UnitWindows> exported = UnitWindows::FromSessions(std::move(windows));
  EMBLA_CHECK(exported.ok());  // Unique and ascending, and floors begin at 1.
  return *std::move(exported);
}

std::size_t ReplayWindows::sessions() const {
  MutexLock lock(mu_);
  return sessions_.size();
}

std::uint64_t ReplayWindows::looks() const {
  MutexLock lock(mu_);
  return looks_;
}

absl::Status ReplayWindows::MakeRoom(absl::Time now) {
  if (sessions_.size() < options_.sessions_max) return absl::OkStatus();
  looks_ += sessions_.size();
  const auto last_used = [](const auto& entry) {
    return SessionId{entry.first} == kStepSession ? absl::InfiniteFuture() : entry.second.last_used;
  };
  const auto idle_longest =
      std::min_element(sessions_.begin(), sessions_.end(),
                       [&](const auto& a, const auto& b) { return last_used(a) < last_used(b); });
  if (idle_longest == sessions_.end() || now - last_used(*idle_longest) < options_.idle_min) {
    return absl::ResourceExhaustedError(
        absl::StrCat(sessions_.size(), " sessions have updated this table within ",
                     absl::FormatDuration(options_.idle_min), ", the limit is ",
                     options_.sessions_max, "; open fewer sessions"));
  }
  sessions_.erase(idle_longest);
  return absl::OkStatus();
}

}  // namespace embla
