#include "server/coordinator/copy_change.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace embla {
namespace {

auto FindCopy(std::vector<std::vector<Slice>>& copies, NodeId node) {
  return std::ranges::find_if(
      copies, [node](const auto& copy) { return copy.front().device.node == node; });
}

absl::Status Cannot(const TablePlan& table, const char* why) {
  return absl::FailedPreconditionError(absl::StrCat("table ", table.spec.name, ": ", why));
}

}  // namespace

std::vector<DeviceId> CopiesOf(const TablePlan& table) {
  std::vector<DeviceId> devices;
  for (const std::vector<Slice>& copy : table.replicas) devices.push_back(copy.front().device);
  return devices;
}

std::int64_t CopyBytes(const TablePlan& table) {
  std::int64_t bytes = 0;
  for (const Slice& slice : table.primary()) bytes += SliceBytes(table.spec, slice);
  return bytes;
}

bool IsMade(const CopyChange& change, const TablePlan& table) {
  const NodeId node = change.device.node;
  const bool is_there = HoldersOf(table).contains(node);
  switch (change.kind) {
    case CopyChange::Kind::kAdd:
    case CopyChange::Kind::kAnew:
      return is_there;
    case CopyChange::Kind::kLead:
      return table.primary().front().device.node == node;
    case CopyChange::Kind::kRemove:
    case CopyChange::Kind::kInherit:
      break;
  }
  return !is_there;
}

TablePlan Inherited(const TablePlan& table, NodeId lost, NodeId heir) {
  TablePlan after = table;
  if (const auto gone = FindCopy(after.replicas, lost); gone != after.replicas.end()) {
    after.replicas.erase(gone);
  }
  const auto copy = FindCopy(after.replicas, heir);
  EMBLA_CHECK(copy != after.replicas.end());
  std::rotate(after.replicas.begin(), copy, copy + 1);
  return after;
}

absl::StatusOr<TablePlan> After(const CopyChange& change, const TablePlan& table) {
  TablePlan after = table;
  if (IsMade(change, table)) return after;
  if (change.kind == CopyChange::Kind::kAnew) after.replicas.clear();
  if (change.kind == CopyChange::Kind::kAdd || change.kind == CopyChange::Kind::kAnew) {
    after.replicas.push_back({{.row_begin = 0,
                               .row_end = table.spec.rows,
                               .column_begin = 0,
                               .column_end = table.spec.dim,
                               .device = change.device}});
    return after;
  }
  const auto copy = FindCopy(after.replicas, change.device.node);
  if (copy == after.replicas.end()) return Cannot(table, "the copy that is to lead is not there");
  if (change.kind == CopyChange::Kind::kLead) {
    std::rotate(after.replicas.begin(), copy, copy + 1);
    return after;
  }
  if (copy == after.replicas.begin()) return Cannot(table, "its primary copy cannot be removed");
  after.replicas.erase(copy);
  return after;
}

}  // namespace embla
