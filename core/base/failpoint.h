// Named places where tests make the outside world fail: a full disk, a lost fsync, a crash. Off
// unless set; a point that is off costs one relaxed load.
//
// Set by code, or by the environment: EMBLA_FAILPOINTS="file.sync=error@3;file.rename=crash", that
// is "the third time file.sync is reached it fails; the first file.rename kills the process".
// A header whose calls have points lists them, as core/base/file.h does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace embla {

enum class FailpointAction : std::uint8_t {
  kError = 1,  // Failpoint() returns Unavailable, once.
  kCrash = 2,  // The process ends at once, as if killed.
};

// Says in the log, at the start of a program, that the environment sets points: a forgotten one
// fails calls for no other reason.
void WarnOfFailpoints();

// OK, unless the point is set and this is the hit it waits for.
absl::Status Failpoint(std::string_view name);
// A place where tests may end the process, and nothing else can go wrong.
inline void CrashPoint(std::string_view name) { static_cast<void>(Failpoint(name)); }

// The point acts at its `hit`-th use from now (1: the next one), then it is off again.
void SetFailpoint(std::string_view name, FailpointAction action, std::uint64_t hit = 1);
// Sets points from text, as in EMBLA_FAILPOINTS. InvalidArgument: nothing is set.
absl::Status SetFailpoints(std::string_view text);
void ClearFailpoints();

// Uses of any point so far while at least one was set: a test first counts, then fails each one.
std::uint64_t FailpointUses(std::string_view name);

}  // namespace embla
