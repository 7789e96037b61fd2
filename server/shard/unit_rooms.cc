// Room for units that come to the node, or to another of its devices: in stores that are there, or
// in new ones.
#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/replica_groups.h"
#include "server/shard/unit_tables.h"

namespace embla {

void UnitTables::Reserve(const UnitId& unit, std::uint32_t device, const RowRun& run,
                         HostDone done) {
  const bool accepted = stores_.Post([this, unit, device, run, done] {
    Answer(node_.publish([&](const NodeTables& old) { return MakeRoom(old, unit, device, run); }),
           done);
  });
  if (!accepted) Answer(absl::UnavailableError("the node stops"), std::move(done));
}

absl::StatusOr<NodeTablesPtr> UnitTables::MakeRoom(const NodeTables& old, const UnitId& id,
                                                   std::uint32_t device, const RowRun& run) {
  EMBLA_ASSIGN_OR_RETURN(Unit unit, FindIn(std::make_shared<const NodeTables>(old), id));
  if (device >= unit.devices_per_group) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", device, " of a node that has ", unit.devices_per_group,
                     unit.groups() > 1 ? " in each replica group" : ""));
  }
  const RowRun rows{std::min(run.row_begin, unit.shape.row_begin),
                    std::max(run.row_end, unit.shape.row_end)};
  if (rows.row_begin < 0 || rows.row_end > unit.plan->spec.rows) {
    return absl::InvalidArgumentError(absl::StrCat("rows [", rows.row_begin, ", ", rows.row_end,
                                                   ") of table ", unit.plan->spec.name,
                                                   ", which has ", unit.plan->spec.rows));
  }
  const std::vector<std::uint32_t> groups = GroupsWithoutRoom(unit, device);
  if (groups.empty()) return NodeTablesPtr();
  EMBLA_ASSIGN_OR_RETURN(std::vector<std::shared_ptr<OwnSlice>> slices,
                         MakeSlices(unit, device, groups, WithoutStored(unit, device, rows)));
  auto next = std::make_shared<NodeTables>(old);
  std::shared_ptr<const NodeTable>& entry = next->tables[ToInt(id.table)];
  NodeTable table = entry == nullptr ? NodeTable() : *entry;
  table.spec = unit.plan->spec;
  table.shards = WithSlices(unit, std::move(slices)).copies;
  if (unit.groups() > 1 && table.group_copies == nullptr) {
    table.group_copies = node_.maker.MakeGroupCopies(table.spec);
  }
  entry = std::make_shared<const NodeTable>(std::move(table));
  return NodeTablesPtr(std::move(next));
}

// The lead devices know of rooms for units that come to the node.
void UnitTables::NoteRoom(const Unit& unit) {
  RunOnDevices(node_.executors, unit.leads(), [&](std::uint32_t device) {
    TableUnits::Cut& cut = unit.CutOn(device);
    if (!cut.present.ContainsAll(unit.rows())) cut.staged.Insert(unit.rows());
  });
}

std::vector<std::uint32_t> UnitTables::GroupsWithoutRoom(const Unit& unit, std::uint32_t device) {
  std::vector<std::uint32_t> groups(unit.groups());
  std::iota(groups.begin(), groups.end(), 0u);
  if (unit.copies.empty()) return groups;
  std::atomic<bool> has_room = false;
  RunOnDevices(node_.executors, DeviceSet::Of(unit.copies.front()->lead_device()),
               [&](std::uint32_t lead) {
                 if (unit.CutOn(lead).staged.ContainsAll(unit.rows())) has_room = true;
               });
  if (has_room) return {};
  Mutex mu;
  RunOnStored(unit, device, [&](std::uint32_t copy) {
    const auto covers = [&](const OwnSlice& own) {
      return own.store != nullptr && own.Covers(unit.columns(), unit.rows());
    };
    bool found = false;
    for (const OwnSlice& own : unit.CopyOn(copy).slices(copy)) {
      found = found || (covers(own) && (own.present.Intersects(unit.rows()) ||
                                        own.staged.Intersects(unit.rows())));
    }
    for (OwnSlice& own : unit.CopyOn(copy).slices(copy)) {
      if (found || !covers(own)) continue;
      own.staged.Insert(unit.rows());
      found = true;
    }
    MutexLock lock(mu);
    if (found) std::erase(groups, unit.GroupOf(copy));
  });
  if (groups.empty()) NoteRoom(unit);
  return groups;
}

// Copies let go of their stores one by one, so for a moment one may have a store that another has
// not.
void UnitTables::RunOnStored(const Unit& unit, std::uint32_t device,
                             const std::function<void(std::uint32_t copy)>& run) const {
  DeviceSet devices;
  for (std::uint32_t group = 0; group < unit.copies.size(); ++group) {
    const std::uint32_t copy = DeviceOfGroup(device, group, unit.devices_per_group);
    if (unit.copies[group]->devices().Has(copy)) devices |= DeviceSet::Of(copy);
  }
  if (!devices.empty()) RunOnDevices(node_.executors, devices, run);
}

RowRun UnitTables::WithoutStored(const Unit& unit, std::uint32_t device, RowRun run) const {
  Mutex mu;
  RunOnStored(unit, device, [&](std::uint32_t copy) {
    MutexLock lock(mu);
    for (const OwnSlice& own : unit.CopyOn(copy).slices(copy)) {
      if (own.store == nullptr || own.columns() != unit.columns()) continue;
      if (own.slice.row_end <= unit.shape.row_begin) {
        run.row_begin = std::max(run.row_begin, own.slice.row_end);
      } else if (own.slice.row_begin >= unit.shape.row_end) {
        run.row_end = std::min(run.row_end, own.slice.row_begin);
      }
    }
  });
  return run;
}

absl::StatusOr<std::vector<std::shared_ptr<OwnSlice>>> UnitTables::MakeSlices(
    const Unit& unit, std::uint32_t device, std::span<const std::uint32_t> groups,
    const RowRun& run) const {
  const TableSpec& spec = unit.plan->spec;
  std::vector<std::shared_ptr<OwnSlice>> slices(unit.groups());
  for (const std::uint32_t group : groups) {
    Slice slice;
    slice.row_begin = run.row_begin;
    slice.row_end = run.row_end;
    slice.column_begin = unit.shape.column_begin;
    slice.column_end = unit.shape.column_end;
    slice.device = {unit.tables->self, DeviceOfGroup(device, group, unit.devices_per_group)};
    absl::StatusOr<SliceMemory> memory = node_.maker.make_unset_memory(spec, slice);
    if (!memory.ok()) {
      return Annotate(memory.status(), absl::StrCat("device ", slice.device.index));
    }
    slices[group] =
        std::make_shared<OwnSlice>(spec, slice, *std::move(memory), node_.maker.metrics);
    slices[group]->staged.Insert(unit.rows());
  }
  return slices;
}

UnitTables::Unit UnitTables::WithSlices(const Unit& unit,
                                        std::vector<std::shared_ptr<OwnSlice>> slices) {
  const TableSpec& spec = unit.plan->spec;
  const PlanVersion version = unit.tables->plan->version();
  Unit next = unit;
  next.copies.clear();
  DeviceSet devices;
  for (std::uint32_t group = 0; group < unit.groups(); ++group) {
    if (slices[group] != nullptr) devices |= DeviceSet::Of(slices[group]->slice.device.index);
    if (!unit.copies.empty()) {
      next.copies.push_back(unit.copies[group]->With(slices[group], spec, version));
    } else {
      next.copies.push_back(TableShard::CreateAround(
          spec, version, DeviceOfGroup(kFirstLeadDevice, group, unit.devices_per_group),
          slices[group], node_.maker.metrics));
    }
  }
  NoteRoom(next);
  RunOnDevices(node_.executors, devices,
               [&](std::uint32_t device) { next.CopyOn(device).CountStorage(device); });
  return next;
}

}  // namespace embla
