#include "server/coordinator/move_plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/replica_groups.h"
#include "server/coordinator/lost_rows.h"
#include "server/coordinator/unit_moves.h"
#include "server/coordinator/unit_tiling.h"

namespace embla {
namespace {

// All units of one column cut that have to leave a device.
struct Leaving {
  const TablePlan* table;  // A table of the plan.
  std::size_t cut = 0;
  DeviceId from;
  std::uint32_t granules = 0;
  std::int64_t bytes = 0;
};

std::int64_t BytesOf(const TablePlan& table, const UnitCut& cut, DeviceId device) {
  std::int64_t bytes = 0;
  for (const GranuleRun& run : RunsOf(cut, device)) bytes += RunBytes(table.spec, cut, run);
  return bytes;
}

// The largest first: what is placed late finds less room.
absl::StatusOr<std::vector<Leaving>> LeavingFrom(const MoveScope& scope, const NodeSpec& node,
                                                 UnitMoves& moves) {
  std::vector<Leaving> leaving;
  for (const TablePlan& table : scope.plan.tables()) {
    if (HasCopies(table) || !HoldersOf(table).contains(node.id)) continue;
    EMBLA_RETURN_IF_ERROR(CheckMovable(table));
    const std::vector<UnitCut>& cuts = moves.CutsOf(table);
    for (std::size_t c = 0; c < cuts.size(); ++c) {
      for (std::uint32_t i = 0; i < node.devices.size(); ++i) {
        const DeviceId from{node.id, i};
        const auto count = static_cast<std::uint32_t>(std::ranges::count(cuts[c].owners, from));
        if (count == 0) continue;
        leaving.push_back({&table, c, from, count, BytesOf(table, cuts[c], from)});
      }
    }
  }
  std::stable_sort(leaving.begin(), leaving.end(),
                   [](const Leaving& a, const Leaving& b) { return a.bytes > b.bytes; });
  return leaving;
}

// Returns the devices that may take the units: those that have some of the same cut, if there are
// any.
std::vector<DeviceId> Receivers(const std::vector<DeviceId>& takers, const UnitCut& cut) {
  std::vector<DeviceId> holders;
  for (const DeviceId device : takers) {
    if (std::ranges::count(cut.owners, device) > 0) holders.push_back(device);
  }
  return holders.empty() ? takers : holders;
}

// How many granules go to whom. A cut that lies on one device stays together if some device has
// room; others go to the least full receivers, block by block.
absl::StatusOr<std::map<DeviceId, std::uint32_t>> Share(const Leaving& leaving, UnitMoves trial) {
  const UnitCut cut = trial.CutsOf(*leaving.table)[leaving.cut];
  const std::vector<DeviceId> takers = trial.TakersOf(*leaving.table);
  const std::vector<DeviceId> near = Receivers(takers, cut);
  // Bytes of the unit in each copy.
  const std::int64_t unit_bytes = leaving.bytes / leaving.granules + 1;
  const bool is_whole = leaving.granules == cut.owners.size();
  std::uint32_t block = leaving.granules;
  if (!is_whole) block /= 4 * static_cast<std::uint32_t>(std::max<std::size_t>(near.size(), 1));
  std::map<DeviceId, std::uint32_t> shares;
  for (std::uint32_t left = leaving.granules; left > 0;) {
    const std::uint32_t count = std::clamp<std::uint32_t>(block, 1, left);
    std::optional<DeviceId> to = trial.LeastFull(*leaving.table, near, count * unit_bytes);
    if (!to) to = trial.LeastFull(*leaving.table, takers, count * unit_bytes);
    if (to) {
      shares[*to] += count;
      trial.Give(*leaving.table, leaving.cut, leaving.from, *to, count);
      left -= count;
    } else if (count == 1) {
      return trial.NoRoom(*leaving.table, left * unit_bytes, takers);
    } else {
      block = count / 2;
    }
  }
  return shares;
}

absl::Status GiveAllOf(const MoveScope& scope, const NodeSpec& node, UnitMoves& moves) {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<Leaving> all, LeavingFrom(scope, node, moves));
  for (const Leaving& leaving : all) {
    EMBLA_ASSIGN_OR_RETURN(const auto shares, Share(leaving, moves));
    for (const auto& [to, count] : shares) {
      moves.Give(*leaving.table, leaving.cut, leaving.from, to, count);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTaker(const MoveScope& scope, const TableSpec& table, DeviceId to) {
  const NodeSpec* const node = scope.plan.FindNode(to.node);
  if (node == nullptr) {
    return absl::NotFoundError(absl::StrCat("there is no node ", ToInt(to.node)));
  }
  if (to.index >= node->devices.size()) {
    return absl::InvalidArgumentError(absl::StrCat("node ", node->name, " has devices 0 to ",
                                                   node->devices.size() - 1, ", not ", to.index));
  }
  const absl::StatusOr<std::uint32_t> per_group =
      DevicesPerGroup(node->name, node->devices.size(), table.replica_groups);
  if (!per_group.ok()) return absl::FailedPreconditionError(per_group.status().message());
  if (to.index >= *per_group) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", table.name, " has ", table.replica_groups,
        " replica groups: name the device for group 0, 0 to ", *per_group - 1, " on node ",
        node->name, ", not ", to.index, "; the other copies go to the same place in their groups"));
  }
  if (!scope.drained.contains(to.node)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("node ", node->name, " is drained; undrain it first"));
}

}  // namespace

std::uint64_t MovePlan::units() const {
  std::uint64_t units = 0;
  for (const MoveRun& run : runs) units += run.units();
  return units + copies.size();
}

std::int64_t MovePlan::bytes() const {
  std::int64_t bytes = 0;
  for (const MoveRun& run : runs) bytes += run.bytes;
  for (const CopyChange& change : copies) bytes += change.bytes;
  return bytes;
}

absl::Status CheckMovable(const TablePlan& table) {
  if (!HasCopies(table)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("table ", table.spec.name,
                   " is data_parallel: its units do not move, but "
                   "reshard, rebalance and drain add and remove whole copies"));
}

absl::StatusOr<const TablePlan*> FindMovable(const Plan& plan, std::string_view name) {
  const TablePlan* const table = plan.FindTable(name);
  if (table == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("there is no table \"", ToAbsl(name.substr(0, 128)), "\""));
  }
  EMBLA_RETURN_IF_ERROR(CheckMovable(*table));
  return table;
}

absl::StatusOr<MovePlan> PlanMove(const MoveScope& scope, std::string_view name,
                                  std::uint32_t granule_begin, std::uint32_t granule_end,
                                  DeviceId to) {
  EMBLA_ASSIGN_OR_RETURN(const TablePlan* const table, FindMovable(scope.plan, name));
  EMBLA_RETURN_IF_ERROR(CheckTaker(scope, table->spec, to));
  if (granule_begin >= granule_end || granule_end > table->spec.row_granules) {
    return absl::InvalidArgumentError(absl::StrCat("granules [", granule_begin, ", ", granule_end,
                                                   ") of table ", table->spec.name, ", which has ",
                                                   table->spec.row_granules, " from 0"));
  }
  UnitMoves moves(scope);
  const std::vector<UnitCut> cuts = moves.CutsOf(*table);
  for (std::size_t c = 0; c < cuts.size(); ++c) {
    for (GranuleRun run{granule_begin, 0}; run.begin < granule_end; run.begin = run.end) {
      run.end = std::min(RunAround(cuts[c], run.begin).end, granule_end);
      if (cuts[c].owners[run.begin] != to) moves.GiveRun(*table, c, run, to);
    }
  }
  return moves.Finish();
}

absl::StatusOr<MovePlan> PlanDrain(const MoveScope& scope, NodeId id) {
  const NodeSpec* const node = scope.plan.FindNode(id);
  if (node == nullptr) return absl::NotFoundError(absl::StrCat("there is no node ", ToInt(id)));
  MoveScope without{.plan = scope.plan, .live = scope.live, .drained = scope.drained};
  without.drained.insert(id);
  UnitMoves moves(without);
  EMBLA_RETURN_IF_ERROR(DrainCopies(without, id, moves));
  EMBLA_RETURN_IF_ERROR(GiveAllOf(scope, *node, moves));
  return moves.Finish();
}

absl::StatusOr<MovePlan> PlanForget(const MoveScope& scope, NodeId id, bool lose_rows) {
  const NodeSpec* const node = scope.plan.FindNode(id);
  if (node == nullptr) return absl::NotFoundError(absl::StrCat("there is no node ", ToInt(id)));
  if (scope.live.contains(id)) {
    return absl::FailedPreconditionError(
        absl::StrCat("node ", node->name, " is live: drain it, stop its process, then forget it"));
  }
  EMBLA_RETURN_IF_ERROR(CheckLoss(scope.plan, *node, lose_rows));
  MoveScope without{.plan = scope.plan, .live = scope.live, .drained = scope.drained};
  without.drained.insert(id);
  without.forgotten = id;
  UnitMoves moves(without);
  EMBLA_RETURN_IF_ERROR(ForgetCopies(without, id, moves));
  EMBLA_RETURN_IF_ERROR(GiveAllOf(scope, *node, moves));
  return moves.Finish();
}

std::vector<Slice> TilingAfter(const TablePlan& table, const std::vector<MoveRun>& runs) {
  std::vector<UnitCut> cuts = CutsOf(table);
  for (const MoveRun& run : runs) {
    const auto cut = std::ranges::find(cuts, run.column_granule, &UnitCut::column_granule);
    EMBLA_CHECK(cut != cuts.end() && run.granule_end <= cut->owners.size());
    std::fill(cut->owners.begin() + run.granule_begin, cut->owners.begin() + run.granule_end,
              run.to);
  }
  return SlicesOf(table.spec, cuts);
}

}  // namespace embla
