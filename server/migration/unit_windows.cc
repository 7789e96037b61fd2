#include "server/migration/unit_windows.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace embla {
namespace {

bool IsBefore(const SessionWindow& window, SessionId session) { return window.session < session; }

}  // namespace

absl::StatusOr<UnitWindows> UnitWindows::FromSessions(std::vector<SessionWindow> sessions) {
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    if (i > 0 && sessions[i - 1].session >= sessions[i].session) {
      return absl::InvalidArgumentError(absl::StrCat(
          "dedup windows: session ", ToInt(sessions[i].session), " is not in ascending order"));
    }
    if (ToInt(sessions[i].floor) == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "dedup windows: session ", ToInt(sessions[i].session), " has floor 0, the first is 1"));
    }
  }
  UnitWindows windows;
  windows.sessions_ = std::move(sessions);
  return windows;
}

SessionWindow UnitWindows::WindowOf(SessionId session, UpdateSeq first_incomplete) const {
  const auto it = std::lower_bound(sessions_.begin(), sessions_.end(), session, IsBefore);
  const bool is_known = it != sessions_.end() && it->session == session;
  SessionWindow window = is_known ? *it : SessionWindow{.session = session};
  window.RaiseFloor(first_incomplete);
  return window;
}

UnitWindows::Verdict UnitWindows::Classify(SessionId session, UpdateSeq seq,
                                           UpdateSeq first_incomplete) const {
  return WindowOf(session, first_incomplete).Classify(seq);
}

absl::StatusOr<bool> UnitWindows::IsApplied(SessionId session, UpdateSeq seq,
                                            UpdateSeq first_incomplete) const {
  const SessionWindow window = WindowOf(session, first_incomplete);
  const Verdict verdict = window.Classify(seq);
  if (verdict != Verdict::kTooNew) return verdict == Verdict::kApplied;
  return absl::ResourceExhaustedError(absl::StrCat(
      "session ", ToInt(session), ": update ", ToInt(seq), " is ", ToInt(seq) - ToInt(window.floor),
      " ahead of the oldest unfinished one, ", ToInt(window.floor), "; at most ",
      SessionWindow::kSize - 1, " may be: too many updates in flight, wait for some"));
}

void UnitWindows::Record(SessionId session, UpdateSeq seq, UpdateSeq first_incomplete) {
  auto it = std::lower_bound(sessions_.begin(), sessions_.end(), session, IsBefore);
  if (it == sessions_.end() || it->session != session) {
    it = sessions_.insert(it, SessionWindow{.session = session});
  }
  it->RaiseFloor(first_incomplete);
  if (it->Classify(seq) != Verdict::kApplied) it->Record(seq);
}

UpdateSeq UnitWindows::FloorOf(SessionId session) const {
  const auto it = std::lower_bound(sessions_.begin(), sessions_.end(), session, IsBefore);
  return it != sessions_.end() && it->session == session ? it->floor : UpdateSeq{};
}

void UnitWindows::Include(const UnitWindows& other) {
  std::vector<SessionWindow> all;
  all.reserve(sessions_.size() + other.sessions_.size());
  std::merge(sessions_.begin(), sessions_.end(), other.sessions_.begin(), other.sessions_.end(),
             std::back_inserter(all),
             [](const SessionWindow& a, const SessionWindow& b) { return a.session < b.session; });
  sessions_.clear();
  for (const SessionWindow& window : all) {
    const bool is_known = !sessions_.empty() && sessions_.back().session == window.session;
    is_known ? sessions_.back().Include(window) : sessions_.push_back(window);
  }
}

void UnitWindows::Forget(const SessionSet& sessions) {
  std::erase_if(sessions_,
                [&](const SessionWindow& window) { return sessions.Has(window.session); });
}

}  // namespace embla
