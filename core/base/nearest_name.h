// The name that a mistyped word was probably meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace embla {

// The one of `names` that takes the fewest changed, missing, extra or swapped neighbouring
// characters to become `word`, or "" when all take more than a third of its length (rounded up).
// Equally near names: the first.
std::string NearestName(std::string_view word, std::span<const std::string> names);

}  // namespace embla
