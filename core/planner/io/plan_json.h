// Plans as JSON: what `embla plan solve -o json` prints, with the proof and the reasons.
// stored_plan.h reads it back. docs/planner.md has the fields.
//
// The file has the problem, too, so that the proof can be checked and a new plan be made from it. A
// plan names tables, hosts and devices, so that it can be bound to a problem whose numbers differ.
// Times that decide are written twice: in ms for people, in ticks exactly.
#pragma once

#include "core/planner/explain/explain.h"
#include "core/planner/io/fields.h"
#include "core/planner/solver/replan.h"
#include "core/planner/solver/solve.h"

namespace embla::planner {

// `explanation` is Explain() of the same plan.
Document PlanToJson(const Planned& planned, const Explanation& explanation, double solve_ms);

// The same after Replan, with the list of moves and their bytes against the bounds.
Document ReplanToJson(const Replanned& replanned, const Explanation& explanation, double solve_ms);

}  // namespace embla::planner
