// 2D parallelism: R groups each hold a full copy of the tables, on 1 / R of every host's devices.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/planner/problem/problem.h"

namespace embla::planner {

// The R that every host's number of devices is a multiple of, ascending; always has 1.
std::vector<std::uint32_t> ReplicaChoices(const Topology& topology);

// One group's share of a canonical problem, as solve.h describes it; `problem` itself for one
// group. A device of the share is as small and as slow as the worst of the R it stands for.
// InvalidArgument: a host whose devices do not divide, or devices of different groups (labels) that
// would stand for each other.
absl::StatusOr<Problem> GroupShare(Problem problem, std::uint32_t replicas);

}  // namespace embla::planner
