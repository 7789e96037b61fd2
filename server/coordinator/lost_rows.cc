#include "server/coordinator/lost_rows.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "server/coordinator/copy_change.h"
#include "server/coordinator/unit_tiling.h"

namespace embla {
namespace {

LostRows LostCopy(const TablePlan& table, NodeId node) {
  LostRows lost{.table = table.spec.name};
  if (table.replicas.size() > 1 || !HoldersOf(table).contains(node)) return lost;
  lost.units = 1;
  lost.rows = static_cast<std::uint64_t>(table.spec.rows);
  lost.bytes = static_cast<std::uint64_t>(CopyBytes(table));
  return lost;
}

LostRows LostUnits(const TablePlan& table, NodeId node) {
  LostRows lost{.table = table.spec.name};
  std::set<std::uint32_t> granules;
  for (const UnitCut& cut : CutsOf(table)) {
    for (std::uint32_t granule = 0; granule < cut.owners.size(); ++granule) {
      if (cut.owners[granule].node != node) continue;
      ++lost.units;
      lost.bytes += table.spec.replica_groups *
                    static_cast<std::uint64_t>(RunBytes(table.spec, cut, {granule, granule + 1}));
      granules.insert(granule);
    }
  }
  for (const std::uint32_t granule : granules) {
    lost.rows += static_cast<std::uint64_t>(table.spec.RowGranuleBegin(granule + 1) -
                                            table.spec.RowGranuleBegin(granule));
  }
  return lost;
}

}  // namespace

std::vector<LostRows> LostWith(const Plan& plan, NodeId node) {
  std::vector<LostRows> all;
  for (const TablePlan& table : plan.tables()) {
    LostRows lost = HasCopies(table) ? LostCopy(table, node) : LostUnits(table, node);
    if (lost.units > 0) all.push_back(std::move(lost));
  }
  return all;
}

absl::Status CheckLoss(const Plan& plan, const NodeSpec& node, bool lose_rows) {
  if (lose_rows) return absl::OkStatus();
  std::string losses;
  for (const LostRows& lost : LostWith(plan, node.id)) {
    absl::StrAppend(&losses, losses.empty() ? "" : ", ", lost.rows, " rows of table ", lost.table,
                    " in ", lost.units, " units");
  }
  if (losses.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("with node ", node.name, " would be lost: ", losses,
                   "; they would begin at initial values on other nodes: say --lose-rows, or bring "
                   "the node back"));
}

}  // namespace embla
