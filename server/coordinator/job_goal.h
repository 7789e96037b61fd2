// The goal of a job, in words and as a queued job is stored.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/statusor.h"

namespace embla {

struct ReshardGoal {
  std::string table;
  std::uint32_t shards = 0;
  bool operator==(const ReshardGoal&) const = default;
};
struct MoveGoal {
  std::string table;
  std::uint32_t granule_begin = 0;  // [granule_begin, granule_end)
  std::uint32_t granule_end = 0;
  std::string node;
  std::uint32_t device = 0;
  bool operator==(const MoveGoal&) const = default;
};
struct DrainGoal {
  std::string node;
  bool operator==(const DrainGoal&) const = default;
};
struct UndrainGoal {
  std::string node;
  bool operator==(const UndrainGoal&) const = default;
};
struct RebalanceGoal {
  bool operator==(const RebalanceGoal&) const = default;
};
// The node is lost: its rows begin anew elsewhere, its copies are removed, and then the node is.
struct ForgetGoal {
  std::string node;
  std::uint32_t id = 0;  // Names are given again.
  bool lose_rows = false;
  bool operator==(const ForgetGoal&) const = default;
};
using JobGoal =
    std::variant<ReshardGoal, MoveGoal, DrainGoal, UndrainGoal, RebalanceGoal, ForgetGoal>;

// "reshard table clicks to 4 shards".
std::string DescriptionOf(const JobGoal& goal);

// One JSON object: {"kind": "reshard", ...}. InvalidArgument.
std::string GoalToJson(const JobGoal& goal);
absl::StatusOr<JobGoal> GoalFromJson(std::string_view json);

}  // namespace embla
