// A whole planning problem as JSON: tables, topology, constraints, options, calibration.
// docs/planner_input.md has the fields. Unknown fields are errors that name them.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "core/planner/io/fields.h"
#include "core/planner/problem/problem.h"

namespace embla::planner {

// Fills `problem` from an object; what is absent stays as it is. A list is read as its tables.
// The caller then changes what it wants and calls Validate.
absl::Status ReadProblem(const Document& json, Problem* problem);

// Measured factors: {"tables": {name: factor}, "devices": {host or host:index: factor}}.
absl::Status ApplyCalibration(const Document& json, Problem* problem);

// The problem as ReadProblem reads it. Nothing is lost: reading gives the same problem.
Document ProblemToJson(const Problem& problem);

}  // namespace embla::planner
