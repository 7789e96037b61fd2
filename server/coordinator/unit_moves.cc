#include "server/coordinator/unit_moves.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
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
  for (const DeviceLoad& load : LoadPerDevice(scope.plan.tables())) {
    rooms_[load.device].used_bytes = load.bytes;
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
  rooms_[to].given_bytes += RunBytes(table.spec, changed, run);
}

std::int64_t UnitMoves::FreeBytes(DeviceId device) const {
  const Room& room = rooms_.at(device);
  return room.memory_bytes - room.used_bytes - room.given_bytes;
}

double UnitMoves::Fullness(DeviceId device) const {
  const Room& room = rooms_.at(device);
  return static_cast<double>(room.used_bytes + room.given_bytes) /
         static_cast<double>(std::max<std::int64_t>(room.memory_bytes, 1));
}

std::optional<DeviceId> UnitMoves::LeastFull(const std::vector<DeviceId>& among,
                                             std::int64_t bytes) const {
  std::optional<DeviceId> best;
  for (const DeviceId device : among) {
    if (FreeBytes(device) < bytes) continue;
    if (!best || Fullness(device) < Fullness(*best)) best = device;
  }
  return best;
}

absl::Status UnitMoves::NoRoom(const TablePlan& table, std::int64_t bytes,
                               const std::vector<DeviceId>& among) const {
  std::string best = "no node that could take them is live";
  std::int64_t most = -1;
  for (const DeviceId device : among) {
    if (FreeBytes(device) <= most) continue;
    most = FreeBytes(device);
    best = absl::StrCat("the most, ", most, " bytes, are free on ", NameOf(device));
  }
  return absl::ResourceExhaustedError(absl::StrCat("table ", table.spec.name, " needs room for ",
                                                   bytes, " bytes more; ", best,
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
        runs.back().bytes += RunBytes(table.spec, after[c], {granule, granule + 1});
      }
    }
  }
  return runs;
}

absl::Status UnitMoves::Check(const MoveRun& run) const {
  const TablePlan& table = *scope_->plan.FindTable(run.table);
  for (const NodeId id : {run.from.node, run.to.node}) {
    if (scope_->live.contains(id)) continue;
    const NodeSpec& node = *scope_->plan.FindNode(id);
    return absl::UnavailableError(absl::StrCat("node ", node.name, " at ", node.address,
                                               " is down and takes part in the move of table ",
                                               table.spec.name, "; start it and try again"));
  }
  if (FreeBytes(run.to) < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat(NameOf(run.to), " has no room for ", rooms_.at(run.to).given_bytes,
                     " bytes more: ", rooms_.at(run.to).used_bytes, " of ",
                     rooms_.at(run.to).memory_bytes, " are used; add nodes or memory"));
  }
  return absl::OkStatus();
}

absl::StatusOr<MovePlan> UnitMoves::Finish() const {
  MovePlan plan{.runs = Runs(), .rooms = {}};
  std::set<DeviceId> devices;
  for (const MoveRun& run : plan.runs) {
    EMBLA_RETURN_IF_ERROR(Check(run));
    devices.insert({run.from, run.to});
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
