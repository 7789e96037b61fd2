// Plans, tables and nodes as JSON: what the state store keeps and the CLI prints. Round-trips
// exactly; unknown fields are errors, so that a typing mistake in a table file is seen.
// Format: docs/plan_format.md.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/plan/plan.h"

namespace embla {

std::string PlanToJson(const Plan& plan);
absl::StatusOr<Plan> PlanFromJson(std::string_view json);

std::string TablePlanToJson(const TablePlan& table);
absl::StatusOr<TablePlan> TablePlanFromJson(std::string_view json);

std::string NodeSpecToJson(const NodeSpec& node);
absl::StatusOr<NodeSpec> NodeSpecFromJson(std::string_view json);

std::string StepPlanToJson(const StepPlan& steps);
absl::StatusOr<StepPlan> StepPlanFromJson(std::string_view json);

std::string TableSpecToJson(const TableSpec& spec);
absl::StatusOr<TableSpec> TableSpecFromJson(std::string_view json);

}  // namespace embla
