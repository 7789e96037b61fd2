// The words of the planner's input and output.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "core/planner/problem/cost_model.h"
#include "core/planner/problem/problem.h"

namespace embla::planner {

std::string_view NameOf(Kernel value);    // device host_cached host ssd
std::string_view NameOf(Spread value);    // any devices hosts
std::string_view NameOf(Pipeline value);  // none sparse_dist prefetch inference
std::string_view NameOf(CostKind value);  // torchrec embla
std::string_view NameOf(Tier value);      // device host ssd
std::string_view NameOf(CostPart value);  // forward_compute ...

// The value called `name`. InvalidArgument lists the allowed words.
absl::StatusOr<Kernel> KernelFromName(std::string_view name);
absl::StatusOr<Spread> SpreadFromName(std::string_view name);
absl::StatusOr<Pipeline> PipelineFromName(std::string_view name);
absl::StatusOr<CostKind> CostKindFromName(std::string_view name);

}  // namespace embla::planner
