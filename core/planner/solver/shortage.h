// Why nothing fits: which tier is short of how many bytes, and which tables need most of it.
#pragma once

#include "absl/status/status.h"
#include "core/planner/problem/machine.h"
#include "core/planner/solver/options.h"

namespace embla::planner {

// ResourceExhausted for tables for which no plan was found; `refuted`: it is proven that there is
// none. Where bytes are short in sum, under some weighing of the tiers, it says so with
// numbers; otherwise it names the tables that are hardest to place.
absl::Status NoPlanError(const Problem& problem, const Machine& machine, const OptionSet& options,
                         bool refuted);

}  // namespace embla::planner
