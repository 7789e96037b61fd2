// The updates of one session that have been applied: {floor, 256 bits}, a value.
//
// Every seq below the floor has been acknowledged to its sender, so nobody needs its record; the
// floor follows the `first_incomplete` that updates carry. Bit i says whether seq floor + i has
// been applied. A sender that has 256 updates between its oldest unacknowledged one and a new one
// is told to wait.
#pragma once

#include <array>
#include <cstdint>

#include "core/base/ids.h"

namespace embla {

struct SessionWindow {
  static constexpr std::uint64_t kSize = 256;
  enum class Verdict : std::uint8_t { kNew, kApplied, kTooNew };

  SessionId session{};
  UpdateSeq floor{1};
  std::array<std::uint64_t, kSize / 64> words = {};  // Bit seq % 256, for floor..floor+255.

  Verdict Classify(UpdateSeq seq) const;
  // The highest of all that has been applied from the floor on; below the floor: none.
  UpdateSeq Highest() const;
  // Forgets what is below `first_incomplete`; the floor never falls.
  void RaiseFloor(UpdateSeq first_incomplete);
  // Requires: Classify(seq) == kNew.
  void Record(UpdateSeq seq);
  // Makes this window the union of both. Requires: both are of the same session.
  void Include(SessionWindow other);

  bool operator==(const SessionWindow&) const = default;
};

}  // namespace embla
