// Which updates of which sessions one unit has applied: the part of exactly-once that travels with
// the rows. A value: it is copied into the final cut of a move, into log records and checkpoints.
//
// Per session {floor, 256 bits}, as in server/table/replay_window.h: every seq below the floor has
// been acknowledged to its sender; the floor follows the `first_incomplete` that updates carry.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"

namespace embla {

struct SessionWindow {
  static constexpr std::uint64_t kSize = 256;

  SessionId session{};
  UpdateSeq floor{1};
  std::array<std::uint64_t, kSize / 64> words = {};  // Bit seq % 256, for floor..floor+255.
  bool operator==(const SessionWindow&) const = default;
};

class UnitWindows {
 public:
  enum class Verdict : std::uint8_t { kNew, kApplied, kTooNew };

  UnitWindows() = default;
  // What travelled. InvalidArgument: sessions not ascending, or a floor of 0.
  static absl::StatusOr<UnitWindows> FromSessions(std::vector<SessionWindow> sessions);

  // As it will be once the sender's `first_incomplete` is taken note of.
  Verdict Classify(SessionId session, UpdateSeq seq, UpdateSeq first_incomplete) const;
  // Raises the session's floor to `first_incomplete` and sets the bit of `seq`.
  // Requires: Classify() == kNew.
  void Record(SessionId session, UpdateSeq seq, UpdateSeq first_incomplete);
  // Forgets a session. Requires: every node refuses its updates from now on, however late.
  void Forget(SessionId session);

  std::span<const SessionWindow> sessions() const { return sessions_; }
  bool operator==(const UnitWindows&) const = default;

 private:
  std::vector<SessionWindow> sessions_;  // Ascending by session.
};

}  // namespace embla
