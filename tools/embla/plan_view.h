// How a plan is shown: which device holds which rows and columns of which table, and how many
// bytes. They show how a table was cut.
#pragma once

#include <cstdint>
#include <string>

#include "core/plan/plan.h"
#include "nlohmann/json.hpp"

namespace embla::cli {

using Json = nlohmann::ordered_json;

// Weights and optimizer state of all replicas.
std::int64_t TableBytes(const TablePlan& table);

// `plan` gives the names of nodes; a node it does not know is shown by its number.
std::string TableText(const Plan& plan, const TablePlan& table);
Json TableView(const Plan& plan, const TablePlan& table);

// Names the members of the next steps: "ranks 0-3, 7 from step 17 on".
std::string MembersText(const StepPlan& steps);

// One line per device: memory, planned bytes, slices.
std::string DevicesText(const Plan& plan);
Json DevicesView(const Plan& plan);

// All of it.
std::string PlanText(const Plan& plan);
Json PlanView(const Plan& plan);

}  // namespace embla::cli
