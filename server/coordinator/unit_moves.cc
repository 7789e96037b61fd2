#include "server/coordinator/unit_moves.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/byte_text.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/planner/placement.h"

namespace embla {
namespace {

// At most `count` granules of `from`'s runs, at an end that touches `to` if one does.
GranuleRun Piece(const UnitCut& cut, DeviceId from, DeviceId to, std::uint32_t count) {
  GranuleRun smallest;
  for (const GranuleRun& run : RunsOf(cut, from)) {
    const std::uint32_t taken = std::min(count, run.size());
    if (run.begin > 0 && cut.owners[run.begin - 1] == to) return {run.begin, run.begin + taken};
    if (run.end < cut.owners.size() && cut.owners[run.end] == to) {
      return {run.end - taken, run.end};
    }
    if (smallest.size() == 0 || run.size() < smallest.size()) smallest = run;
  }
  return {smallest.end - std::min(count, smallest.size()), smallest.end};
}

}  // namespace

UnitMoves::UnitMoves(const MoveScope& scope) : scope_(&scope) {
  for (const NodeSpec& node : scope.plan.nodes()) {
    for (std::uint32_t i = 0; i < node.devices.size(); ++i) {
      const DeviceId device{node.id, i};
      rooms_[device].memory_bytes = node.devices[i].memory_bytes;
      if (scope.live.contains(node.id) && !scope.drained.contains(node.id)) {
        takers_.push_back(device);
      }
    }
  }
  for (const auto& [device, bytes] : DeviceLoads(scope.plan.tables())) {
    rooms_[device].used_bytes = bytes;
  }
}

const std::vector<UnitCut>& UnitMoves::CutsOf(const TablePlan& table) {
  const auto [entry, is_new] = cuts_.try_emplace(table.spec.id);
  if (is_new) entry->second = embla::CutsOf(table);
  return entry->second;
}

void UnitMoves::Give(const TablePlan& table, std::size_t cut, DeviceId from, DeviceId to,
                     std::uint32_t count) {
  while (count > 0) {
    const GranuleRun piece = Piece(CutsOf(table)[cut], from, to, count);
    EMBLA_CHECK(piece.size() > 0);
    GiveRun(table, cut, piece, to);
    count -= piece.size();
  }
}

void UnitMoves::GiveRun(const TablePlan& table, std::size_t cut, const GranuleRun& run,
                        DeviceId to) {
  static_cast<void>(CutsOf(table));
  UnitCut& changed = cuts_[table.spec.id][cut];
  std::fill(changed.owners.begin() + run.begin, changed.owners.begin() + run.end, to);
  for (const DeviceId copy : CopiesOf(table, to)) {
    rooms_[copy].given_bytes += RunBytes(table.spec, changed, run);
  }
}

std::vector<DeviceId> UnitMoves::CopiesOf(const TablePlan& table, DeviceId device) const {
  return embla::CopiesOf(table.spec, *scope_->plan.FindNode(device.node), device);
}

std::vector<DeviceId> UnitMoves::TakersOf(const TablePlan& table) const {
  std::vector<DeviceId> takers;
  for (const DeviceId device : takers_) {
    const NodeSpec& node = *scope_->plan.FindNode(device.node);
    if (device.index < DevicesForUnits(table.spec, node)) takers.push_back(device);
  }
  return takers;
}

std::int64_t UnitMoves::FreeBytes(const TablePlan& table, DeviceId device) const {
  std::int64_t free = std::numeric_limits<std::int64_t>::max();
  for (const DeviceId copy : CopiesOf(table, device)) {
    free = std::min(free, rooms_.at(copy).free_bytes());
  }
  return free;
}

double UnitMoves::Fullness(const TablePlan& table, DeviceId device) const {
  double fullness = 0;
  for (const DeviceId copy : CopiesOf(table, device)) {
    const Room& room = rooms_.at(copy);
    fullness =
        std::max(fullness, static_cast<double>(room.used_bytes + room.given_bytes) /
                               static_cast<double>(std::max<std::int64_t>(room.memory_bytes, 1)));
  }
  return fullness;
}

std::optional<DeviceId> UnitMoves::LeastFull(const TablePlan& table,
                                             const std::vector<DeviceId>& among,
                                             std::int64_t bytes) const {
  std::optional<DeviceId> best;
  for (const DeviceId device : among) {
    if (FreeBytes(table, device) < bytes) continue;
    if (!best || Fullness(table, device) < Fullness(table, *best)) best = device;
  }
  return best;
}

absl::Status UnitMoves::NoRoom(const TablePlan& table, std::int64_t bytes,
                               const std::vector<DeviceId>& among) const {
  std::string best = "no node that could take them is live";
  std::int64_t most = -1;
  for (const DeviceId device : among) {
    const std::int64_t free = FreeBytes(table, device);
    if (free <= most) continue;
    most = free;
    best = absl::StrCat("the most, ", FormatBytes(most), ", is free on ", NameOf(device));
  }
  return absl::ResourceExhaustedError(absl::StrCat("table ", table.spec.name, " needs room for ",
                                                   FormatBytes(bytes), " more; ", best,
                                                   "; add nodes or memory"));
}

std::string UnitMoves::NameOf(DeviceId device) const {
  const NodeSpec* const node = scope_->plan.FindNode(device.node);
  return absl::StrCat("node ", node == nullptr ? "?" : node->name, " device ", device.index);
}

std::vector<MoveRun> UnitMoves::Runs() const {
  std::vector<MoveRun> runs;
  for (const auto& [id, after] : cuts_) {
    const TablePlan& table = *scope_->plan.FindTable(id);
    const std::vector<UnitCut> before = embla::CutsOf(table);
    for (std::size_t c = 0; c < after.size(); ++c) {
      for (std::uint32_t granule = 0; granule < table.spec.row_granules; ++granule) {
        const DeviceId from = before[c].owners[granule];
        const DeviceId to = after[c].owners[granule];
        if (from == to) continue;
        const bool joins = !runs.empty() && runs.back().table == id &&
                           runs.back().column_granule == after[c].column_granule &&
                           runs.back().granule_end == granule && runs.back().from == from &&
                           runs.back().to == to;
        if (!joins) {
          runs.push_back({.table = id,
                          .column_granule = after[c].column_granule,
                          .granule_begin = granule,
                          .granule_end = granule,
                          .from = from,
                          .to = to});
        }
        runs.back().granule_end = granule + 1;
        runs.back().bytes +=
            table.spec.replica_groups * RunBytes(table.spec, after[c], {granule, granule + 1});
      }
    }
  }
  return runs;
}

absl::Status UnitMoves::CheckNode(const TablePlan& table, NodeId id) const {
  if (scope_->live.contains(id) || id == scope_->forgotten) return absl::OkStatus();
  const NodeSpec& node = *scope_->plan.FindNode(id);
  return absl::UnavailableError(absl::StrCat("node ", node.name, " at ", node.address,
                                             " is down and takes part in the move of table ",
                                             table.spec.name, "; start it and try again"));
}

absl::Status UnitMoves::CheckRoom(DeviceId device) const {
  const Room& room = rooms_.at(device);
  if (room.free_bytes() >= 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(NameOf(device), " has no room for ", FormatBytes(room.given_bytes),
                   " more: ", FormatBytes(room.used_bytes), " of ", FormatBytes(room.memory_bytes),
                   " are used; add nodes or memory"));
}

absl::Status UnitMoves::Check(const MoveRun& run) const {
  const TablePlan& table = *scope_->plan.FindTable(run.table);
  EMBLA_RETURN_IF_ERROR(CheckNode(table, run.from.node));
  EMBLA_RETURN_IF_ERROR(CheckNode(table, run.to.node));
  for (const DeviceId copy : CopiesOf(table, run.to)) EMBLA_RETURN_IF_ERROR(CheckRoom(copy));
  return absl::OkStatus();
}

void UnitMoves::ChangeCopy(const TablePlan& table, CopyChange::Kind kind, DeviceId device) {
  CopyChange change{.kind = kind, .table = table.spec.id, .device = device};
  if (kind == CopyChange::Kind::kAdd || kind == CopyChange::Kind::kAnew) {
    change.bytes = CopyBytes(table);
    // One that went before, in the same plan, leaves its room.
    const CopyChange gone{
        .kind = CopyChange::Kind::kRemove, .table = table.spec.id, .device = device};
    if (std::ranges::count(copies_, gone) == 0) rooms_[device].given_bytes += change.bytes;
  }
  copies_.push_back(change);
}

absl::StatusOr<MovePlan> UnitMoves::Finish() const {
  MovePlan plan{.runs = Runs(), .rooms = {}, .copies = copies_};
  std::set<DeviceId> devices;
  for (const CopyChange& change : copies_) {
    const TablePlan& table = *scope_->plan.FindTable(change.table);
    // A copy comes from the primary, and goes from its node.
    EMBLA_RETURN_IF_ERROR(CheckNode(table, table.primary().front().device.node));
    EMBLA_RETURN_IF_ERROR(CheckNode(table, change.device.node));
    EMBLA_RETURN_IF_ERROR(CheckRoom(change.device));
    devices.insert(change.device);
  }
  for (const MoveRun& run : plan.runs) {
    EMBLA_RETURN_IF_ERROR(Check(run));
    for (const DeviceId end : {run.from, run.to}) {
      const std::vector<DeviceId> copies = CopiesOf(*scope_->plan.FindTable(run.table), end);
      devices.insert(copies.begin(), copies.end());
    }
  }
  for (const DeviceId device : devices) {
    const Room& room = rooms_.at(device);
    plan.rooms.push_back({.device = device,
                          .memory_bytes = room.memory_bytes,
                          .used_bytes = room.used_bytes,
                          .peak_bytes = room.used_bytes + room.given_bytes});
  }
  return plan;
}

}  // namespace embla
