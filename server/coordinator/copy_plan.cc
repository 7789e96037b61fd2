// Plans the changes of data_parallel tables' copies: which are added and removed, and which one
// leads. Copies go to the node's device with the most room; of those that may lead, the first in
// the plan does. While the primary changes, the table has no copies but the old and the new
// primary: the others go first, and come back (docs/decisions/0012-copies-by-plan.md). Tests:
// copy_plan_test.cc.
#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "server/coordinator/unit_moves.h"

namespace embla {
namespace {

using Kind = CopyChange::Kind;

// The devices of nodes without a copy in `copies`.
std::vector<DeviceId> Without(const TablePlan& table, const UnitMoves& moves,
                              const std::vector<DeviceId>& copies) {
  std::vector<DeviceId> devices = moves.TakersOf(table);
  std::erase_if(devices, [&copies](DeviceId device) {
    return std::ranges::any_of(copies, [device](DeviceId c) { return c.node == device.node; });
  });
  return devices;
}

// Adds a copy where there is the most room.
absl::Status AddCopy(const TablePlan& table, std::vector<DeviceId>& copies, UnitMoves& moves) {
  const std::vector<DeviceId> among = Without(table, moves, copies);
  const std::optional<DeviceId> to = moves.LeastFull(table, among, CopyBytes(table));
  if (!to) return moves.NoRoom(table, CopyBytes(table), among);
  moves.ChangeCopy(table, Kind::kAdd, *to);
  copies.push_back(*to);
  return absl::OkStatus();
}

// Takes the copy on `node` away. FailedPrecondition: it is the primary.
absl::Status RemoveCopy(const TablePlan& table, NodeId node, std::vector<DeviceId>& copies,
                        UnitMoves& moves) {
  const auto copy = std::ranges::find(copies, node, &DeviceId::node);
  if (copy == copies.begin()) {
    return absl::FailedPreconditionError(
        absl::StrCat("table ", table.spec.name, " has its primary copy on ", moves.NameOf(*copy),
                     ", and a primary copy stays where it is"));
  }
  moves.ChangeCopy(table, Kind::kRemove, *copy);
  copies.erase(copy);
  return absl::OkStatus();
}

// Another copy leads, and the primary's goes.
absl::Status DrainPrimary(const MoveScope& scope, const TablePlan& table,
                          std::vector<DeviceId>& copies, UnitMoves& moves) {
  const DeviceId old = copies.front();
  auto heir = std::find_if(copies.begin() + 1, copies.end(), [&scope](DeviceId copy) {
    return scope.live.contains(copy.node) && !scope.drained.contains(copy.node);
  });
  if (heir == copies.end()) {
    EMBLA_RETURN_IF_ERROR(AddCopy(table, copies, moves));
    heir = copies.end() - 1;
  }
  const DeviceId next = *heir;
  std::erase_if(copies, [&](DeviceId copy) { return copy == old || copy == next; });
  for (const DeviceId other : copies) moves.ChangeCopy(table, Kind::kRemove, other);
  moves.ChangeCopy(table, Kind::kLead, next);
  moves.ChangeCopy(table, Kind::kRemove, old);
  for (const DeviceId other : copies) {
    if (!scope.drained.contains(other.node)) moves.ChangeCopy(table, Kind::kAdd, other);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DrainCopies(const MoveScope& scope, NodeId node, UnitMoves& moves) {
  for (const TablePlan& table : scope.plan.tables()) {
    if (!HasCopies(table) || !HoldersOf(table).contains(node)) continue;
    std::vector<DeviceId> copies = CopiesOf(table);
    if (copies.front().node == node) {
      EMBLA_RETURN_IF_ERROR(DrainPrimary(scope, table, copies, moves));
    } else {
      EMBLA_RETURN_IF_ERROR(RemoveCopy(table, node, copies, moves));
    }
  }
  return absl::OkStatus();
}

absl::Status ForgetCopies(const MoveScope& scope, NodeId node, UnitMoves& moves) {
  for (const TablePlan& table : scope.plan.tables()) {
    if (!HasCopies(table) || !HoldersOf(table).contains(node)) continue;
    const std::vector<DeviceId> copies = CopiesOf(table);
    const DeviceId lost = *std::ranges::find(copies, node, &DeviceId::node);
    if (copies.size() > 1) {
      moves.ChangeCopy(table, lost == copies.front() ? Kind::kInherit : Kind::kRemove, lost);
      continue;
    }
    const std::vector<DeviceId> among = Without(table, moves, copies);
    const std::optional<DeviceId> to = moves.LeastFull(table, among, CopyBytes(table));
    if (!to) return moves.NoRoom(table, CopyBytes(table), among);
    moves.ChangeCopy(table, Kind::kAnew, *to);
  }
  return absl::OkStatus();
}

absl::Status ChangeCopyCount(const MoveScope& scope, const TablePlan& table, std::uint32_t wanted,
                             UnitMoves& moves) {
  if (wanted == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", table.spec.name, " is data_parallel: at least 1 copy, not 0"));
  }
  std::vector<DeviceId> copies = CopiesOf(table);
  if (wanted > copies.size() + Without(table, moves, copies).size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(wanted, " copies of table ", table.spec.name, " need as many nodes that are ",
                     "live and not drained; ", copies.size(), " have one already"));
  }
  while (copies.size() < wanted) EMBLA_RETURN_IF_ERROR(AddCopy(table, copies, moves));
  while (copies.size() > wanted) {
    // Copies on drained nodes are removed first, then the last ones.
    auto goes = std::find_if(copies.begin() + 1, copies.end(),
                             [&scope](DeviceId copy) { return scope.drained.contains(copy.node); });
    if (goes == copies.end()) --goes;
    EMBLA_RETURN_IF_ERROR(RemoveCopy(table, goes->node, copies, moves));
  }
  return absl::OkStatus();
}

void AddMissingCopies(const MoveScope& scope, UnitMoves& moves) {
  for (const TablePlan& table : scope.plan.tables()) {
    if (!HasCopies(table)) continue;
    std::vector<DeviceId> copies = CopiesOf(table);
    while (moves.LeastFull(table, Without(table, moves, copies), CopyBytes(table)).has_value()) {
      if (!AddCopy(table, copies, moves).ok()) break;
    }
  }
}

}  // namespace embla
