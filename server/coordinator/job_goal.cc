#include "server/coordinator/job_goal.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/plan/json_fields.h"

namespace embla {
namespace {

struct Describer {
  std::string operator()(const ReshardGoal& goal) const {
    return absl::StrCat("reshard table ", goal.table, " to ", goal.shards, " shards");
  }
  std::string operator()(const MoveGoal& goal) const {
    return absl::StrCat("move granules ", goal.granule_begin, "-", goal.granule_end - 1,
                        " of table ", goal.table, " to ", goal.node, ":", goal.device);
  }
  std::string operator()(const DrainGoal& goal) const {
    return absl::StrCat("drain node ", goal.node);
  }
  std::string operator()(const UndrainGoal& goal) const {
    return absl::StrCat("undrain node ", goal.node);
  }
  std::string operator()(const RebalanceGoal&) const { return "rebalance the cluster"; }
  std::string operator()(const ForgetGoal& goal) const {
    return absl::StrCat("forget node ", goal.node, goal.lose_rows ? " with its rows" : "");
  }
};

struct Writer {
  Json operator()(const ReshardGoal& goal) const {
    return {{"kind", "reshard"}, {"table", goal.table}, {"shards", goal.shards}};
  }
  Json operator()(const MoveGoal& goal) const {
    return {{"kind", "move"},
            {"table", goal.table},
            {"granule_begin", goal.granule_begin},
            {"granule_end", goal.granule_end},
            {"node", goal.node},
            {"device", goal.device}};
  }
  Json operator()(const DrainGoal& goal) const { return {{"kind", "drain"}, {"node", goal.node}}; }
  Json operator()(const UndrainGoal& goal) const {
    return {{"kind", "undrain"}, {"node", goal.node}};
  }
  Json operator()(const RebalanceGoal&) const { return {{"kind", "rebalance"}}; }
  Json operator()(const ForgetGoal& goal) const {
    return {{"kind", "forget"},
            {"node", goal.node},
            {"id", goal.id},
            {"lose_rows", goal.lose_rows ? 1 : 0}};
  }
};

absl::StatusOr<JobGoal> Read(JsonFields& fields) {
  const auto number = [&fields](std::string_view name) {
    return static_cast<std::uint32_t>(fields.Unsigned(name, 0, UINT32_MAX));
  };
  const std::string kind = fields.Text("kind");
  if (kind == "reshard") {
    return ReshardGoal{.table = fields.Text("table"), .shards = number("shards")};
  }
  if (kind == "move") {
    return MoveGoal{.table = fields.Text("table"),
                    .granule_begin = number("granule_begin"),
                    .granule_end = number("granule_end"),
                    .node = fields.Text("node"),
                    .device = number("device")};
  }
  if (kind == "drain") return DrainGoal{fields.Text("node")};
  if (kind == "undrain") return UndrainGoal{fields.Text("node")};
  if (kind == "rebalance") return RebalanceGoal{};
  if (kind == "forget") {
    return ForgetGoal{.node = fields.Text("node"),
                      .id = number("id"),
                      .lose_rows = fields.Unsigned("lose_rows", 0, 1) == 1};
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", kind, "\" is no goal of a job"));
}

}  // namespace

std::string DescriptionOf(const JobGoal& goal) { return std::visit(Describer{}, goal); }

std::string GoalToJson(const JobGoal& goal) { return DumpJson(std::visit(Writer{}, goal)); }

absl::StatusOr<JobGoal> GoalFromJson(std::string_view json) {
  EMBLA_ASSIGN_OR_RETURN(const Json document, ParseJson(json));
  JsonFields fields(document, "goal of a job");
  EMBLA_ASSIGN_OR_RETURN(const JobGoal goal, Read(fields));
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  return goal;
}

}  // namespace embla
