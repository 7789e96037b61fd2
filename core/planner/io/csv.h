// Tables as comma-separated values (RFC 4180): a header line with the columns name, rows, dim and
// pooling, in any order; further columns are optional. docs/planner_input.md lists them.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/planner/problem/problem.h"

namespace embla::planner {

// Columns: name, rows, dim, pooling (mean ids per bag; default 1), and optionally poolings (bags
// per sample), element_bytes, wire_bytes, optimizer, weighted, pooled, measured_factor.
// A cell may stand in double quotes, a quote inside it twice; then it may hold commas and line
// breaks. InvalidArgument names the line and the column.
absl::StatusOr<std::vector<Table>> TablesFromCsv(std::string_view text);

}  // namespace embla::planner
