// Moves bound and plan together by the search's yes and no.
#pragma once

#include <cstdint>
#include <optional>

#include "core/planner/solver/search.h"

namespace embla::planner {

struct SearchLimits {
  Ticks bound = 0;  // Proven already.
  std::int64_t goal_gap_ppm = 0;
  std::int64_t operations_max = 0;
};
struct SearchOutcome {
  Ticks bound = 0;  // kTicksMax: it is proven that there is no plan at all.
  std::int64_t operations = 0;
};

// Narrows the interval from the bound to the load of `best` by such questions, from both ends.
// Where `best` is empty any plan is looked for first.
SearchOutcome NarrowBySearch(const OptionSet& options, const Machine& machine, const Prices& prices,
                             const SearchLimits& limits, std::optional<Layout>* best);

}  // namespace embla::planner
