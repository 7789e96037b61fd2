// How a unit's record of updates knows which synchronous steps it has made
// (docs/synchronous_steps.md): the steps of a table are updates of a session of their own, and step
// s is its update s + 1. So the next step travels with the record, wherever that goes.
#pragma once

#include <cstdint>

#include "core/base/ids.h"

namespace embla {

// The coordinator never grants it.
inline constexpr SessionId kStepSession{UINT64_MAX};

inline constexpr UpdateSeq SeqOfStep(std::uint64_t step) { return UpdateSeq{step + 1}; }
// `floor` is that of kStepSession, every record of which names itself as the first incomplete one;
// 0: there is none.
inline constexpr std::uint64_t NextStep(UpdateSeq floor) { return ToInt(floor); }

}  // namespace embla
