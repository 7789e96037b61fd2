#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "server/coordinator/coordinator.h"

namespace embla {
namespace {

constexpr std::size_t kTablesNamedMax = 8;

// `table t1 (1000 rows), table t2 (5 rows)`.
std::string Names(const std::vector<LostRows>& lost) {
  std::vector<std::string> names;
  for (const LostRows& rows : lost) {
    if (names.size() == kTablesNamedMax) {
      names.push_back(absl::StrCat("and ", lost.size() - names.size(), " more tables"));
      break;
    }
    names.push_back(absl::StrCat("table ", rows.table, " (", rows.rows, " rows)"));
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace

absl::Status Coordinator::CheckDirectory(const NodeRegistration& registration) const {
  const NodeSpec* const known = plan_->FindNode(registration.name);
  const NodeId owner = registration.past.node;
  // An id that was not given out yet is from a store that was newer than this one.
  const bool was_given = ToInt(owner) < records_.head().next_node_id;
  if (owner != NodeId{} && was_given && (known == nullptr || known->id != owner)) {
    const NodeSpec* const other = plan_->FindNode(owner);
    return absl::FailedPreconditionError(absl::StrCat(
        "the --data-dir of node ", registration.name, " belongs to ",
        other != nullptr ? absl::StrCat("node ", other->name)
                         : absl::StrCat("node id ", ToInt(owner), ", which is forgotten"),
        ": give the node its own directory, or an empty one"));
  }
  if (known == nullptr) return absl::OkStatus();
  const std::string missing =
      directories_.WhatIsMissing(known->id, registration.incarnation, registration.past);
  if (missing.empty() || registration.accept_loss) return absl::OkStatus();
  const std::vector<LostRows> lost = RowsOnlyOn(*plan_, known->id);
  if (lost.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "node ", registration.name, " may not have all of its rows: ", missing,
      ". They are nowhere else: ", Names(lost),
      ". Start it with the directory that it had; or with --accept-loss, at the price that rows "
      "which are not there begin at their initial values"));
}

absl::Status Coordinator::TakeDirectory(const NodeSpec& node, const NodeRegistration& registration,
                                        bool was_known) {
  const std::string missing =
      was_known ? directories_.WhatIsMissing(node.id, registration.incarnation, registration.past)
                : "";
  EMBLA_RETURN_IF_ERROR(
      directories_.Register(store_, node.id, registration.incarnation, registration.past));
  if (missing.empty()) return absl::OkStatus();
  for (const LostRows& lost : RowsOnlyOn(*plan_, node.id)) {
    rows_lost_ += static_cast<std::uint64_t>(lost.rows);
    LogWarning("coordinator", "rows are lost, as --accept-loss allows node=", node.name,
               " table=", lost.table, " rows=", lost.rows, " reason=", missing);
  }
  return absl::OkStatus();
}

}  // namespace embla
