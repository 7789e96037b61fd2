#include "server/migration/unit_windows.h"

#include <algorithm>
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

UnitWindows::Verdict UnitWindows::Classify(SessionId session, UpdateSeq seq,
                                           UpdateSeq first_incomplete) const {
  const auto it = std::lower_bound(sessions_.begin(), sessions_.end(), session, IsBefore);
  const bool is_known = it != sessions_.end() && it->session == session;
  SessionWindow window = is_known ? *it : SessionWindow{.session = session};
  window.RaiseFloor(first_incomplete);
  return window.Classify(seq);
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
  for (const SessionWindow& window : other.sessions_) {
    const auto it = std::lower_bound(sessions_.begin(), sessions_.end(), window.session, IsBefore);
    if (it != sessions_.end() && it->session == window.session) {
      it->Include(window);
    } else {
      sessions_.insert(it, window);
    }
  }
}

void UnitWindows::Forget(const SessionSet& sessions) {
  std::erase_if(sessions_,
                [&](const SessionWindow& window) { return sessions.Has(window.session); });
}

}  // namespace embla
