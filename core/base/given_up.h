// Tells whether the caller has given up: long work asks now and then, and ends.
#pragma once

#include <functional>

namespace embla {

// Cheap, and callable from any thread. Null: the caller never gives up.
using GivenUp = std::function<bool()>;

inline bool IsGivenUp(const GivenUp& given_up) { return given_up != nullptr && given_up(); }

}  // namespace embla
