// A solved plan as text for people.
#pragma once

#include <string>

#include "core/planner/explain/explain.h"
#include "core/planner/solver/replan.h"
#include "core/planner/solver/solve.h"

namespace embla::cli {

struct ReportOptions {
  double solve_ms = 0;
  bool checked = false;     // The checker accepted the plan.
  bool all_tables = false;  // Else those with the most work.
};

// Summary, bound, memory prices, hottest device, bars of load and memory, tables with their
// reasons. Lists of many devices or tables are cut; the text says so.
std::string PlanReport(const planner::Planned& planned, const planner::Explanation& explanation,
                       const ReportOptions& options);

// Shows the moves, their bytes, and the least possible number.
std::string MovesReport(const planner::Replanned& replanned, bool all_moves);

// "which costs 3.31 ms more": a table's next best cut against the one that was chosen. One that
// costs less by itself was not chosen for the sake of the whole plan.
std::string MarginText(double margin_ms);

// "[######----]": `share` of 1, in `width` characters.
std::string TextBar(double share, int width);

}  // namespace embla::cli
