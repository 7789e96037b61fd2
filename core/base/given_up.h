// Whether nobody waits for an answer any more: long work asks now and then, and ends.
#pragma once

#include <functional>

namespace embla {

// Cheap, and callable from any thread. Null: somebody always waits.
using GivenUp = std::function<bool()>;

inline bool IsGivenUp(const GivenUp& given_up) { return given_up != nullptr && given_up(); }

}  // namespace embla
