// Tables and their rules as JSON. docs/planner_input.md has the fields.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/planner/io/fields.h"
#include "core/planner/problem/problem.h"

namespace embla::planner {

// A list of tables. InvalidArgument names the table and the field.
absl::StatusOr<std::vector<Table>> TablesFromJson(const Document& json);

// Rules by table: an object whose fields are table names, or patterns with `*`. A table takes the
// rules of every field that fits it, field by field; the pattern with more letters counts more, a
// name without `*` most. InvalidArgument: a field that fits no table.
absl::Status ApplyConstraints(const Document& json, std::vector<Table>* tables);

// Whether `name` fits `pattern`, in which every `*` stands for any text.
bool MatchesPattern(std::string_view pattern, std::string_view name);

}  // namespace embla::planner
