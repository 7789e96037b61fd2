// A plan as a picture (SVG): load and memory of every device, the hottest one marked, the bound as
// a line. Readable from 1 to thousands of devices, on light and on dark backgrounds; hovering over
// a bar shows its numbers.
#pragma once

#include <string>

#include "core/planner/explain/explain.h"
#include "core/planner/problem/problem.h"
#include "core/planner/problem/solution.h"

namespace embla::planner {

// `explanation` is Explain() of the same two.
std::string PictureOf(const Problem& canonical, const Solution& solution,
                      const Explanation& explanation);

}  // namespace embla::planner
