// Ranks for people to read, however many there are: "0-3, 7".
#pragma once

#include <span>
#include <string>

#include "core/base/ids.h"

namespace embla {

// Requires: ascending.
std::string RankRuns(std::span<const Rank> ranks);

}  // namespace embla
