// Tables as comma-separated values: a header line with the columns name, rows, dim and pooling, in
// any order; further columns are optional.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/planner/problem/problem.h"

namespace embla::planner {

// Columns: name, rows, dim, pooling (mean ids per sample; default 1), and optionally poolings
// (bags per sample), element_bytes, optimizer, weighted, pooled.
// InvalidArgument names the line and the column. No quoting: names hold no commas.
absl::StatusOr<std::vector<Table>> TablesFromCsv(std::string_view text);

}  // namespace embla::planner
