#include "server/migration/unit_windows.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace embla {
namespace {

constexpr std::uint64_t kWordBits = 64;

std::uint64_t WordOf(std::uint64_t seq) { return seq % SessionWindow::kSize / kWordBits; }
std::uint64_t BitOf(std::uint64_t seq) { return std::uint64_t{1} << seq % kWordBits; }

bool IsBefore(const SessionWindow& window, SessionId session) { return window.session < session; }

void RaiseFloor(SessionWindow& window, UpdateSeq first_incomplete) {
  const std::uint64_t from = ToInt(window.floor);
  const std::uint64_t to = ToInt(first_incomplete);
  if (to <= from) return;
  if (to - from >= SessionWindow::kSize) {
    window.words.fill(0);
  } else {
    for (std::uint64_t seq = from; seq < to; ++seq) window.words[WordOf(seq)] &= ~BitOf(seq);
  }
  window.floor = first_incomplete;
}

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
  const std::uint64_t old_floor = is_known ? ToInt(it->floor) : 1;
  const std::uint64_t floor = std::max(old_floor, ToInt(first_incomplete));
  const std::uint64_t value = ToInt(seq);
  if (value < floor) return Verdict::kApplied;
  if (value - floor >= SessionWindow::kSize) return Verdict::kTooNew;
  // Bits at old_floor + 256 and above are not kept yet: they are not set.
  if (!is_known || value - old_floor >= SessionWindow::kSize) return Verdict::kNew;
  return (it->words[WordOf(value)] & BitOf(value)) != 0 ? Verdict::kApplied : Verdict::kNew;
}

void UnitWindows::Record(SessionId session, UpdateSeq seq, UpdateSeq first_incomplete) {
  auto it = std::lower_bound(sessions_.begin(), sessions_.end(), session, IsBefore);
  if (it == sessions_.end() || it->session != session) {
    it = sessions_.insert(it, SessionWindow{.session = session});
  }
  RaiseFloor(*it, first_incomplete);
  EMBLA_CHECK(seq >= it->floor && ToInt(seq) - ToInt(it->floor) < SessionWindow::kSize);
  it->words[WordOf(ToInt(seq))] |= BitOf(ToInt(seq));
}

void UnitWindows::Forget(SessionId session) {
  const auto it = std::lower_bound(sessions_.begin(), sessions_.end(), session, IsBefore);
  if (it != sessions_.end() && it->session == session) sessions_.erase(it);
}

}  // namespace embla
