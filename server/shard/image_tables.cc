#include "server/shard/image_tables.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "server/shard/table_steps.h"
#include "server/table/row_io.h"
#include "server/table/unit_io.h"
#include "server/table/unit_shape.h"

namespace embla {
namespace {

absl::Status OnItsWay(const TableSpec& spec, const char* what) {
  return absl::UnavailableError(absl::StrCat("table ", spec.name, ": ", what, " on its way"));
}

std::int64_t CountRows(const RowIntervals& rows) {
  std::int64_t count = 0;
  for (const RowInterval& interval : rows.intervals()) count += interval.end - interval.begin;
  return count;
}

// Rows of `slice` that its device has.
std::int64_t CountPresent(TableShard& shard, const Slice& slice) {
  std::int64_t count = 0;
  for (const OwnSlice& own : shard.slices(slice.device.index)) {
    if (own.columns() != ColumnRange{slice.column_begin, slice.column_end}) continue;
    count += CountRows(own.present.CommonWith(RowIntervals({slice.row_begin, slice.row_end})));
  }
  return count;
}

bool HasStaged(TableShard& shard) {
  for (std::uint32_t device = 0; device < kDevicesPerNodeMax; ++device) {
    if (!shard.devices().Has(device)) continue;
    for (const OwnSlice& own : shard.slices(device)) {
      if (!own.staged.empty()) return true;
    }
  }
  return false;
}

// Values of the rows that are present, on all devices.
std::int64_t CountAll(TableShard& shard) {
  std::int64_t count = 0;
  for (std::uint32_t device = 0; device < kDevicesPerNodeMax; ++device) {
    if (!shard.devices().Has(device)) continue;
    for (const OwnSlice& own : shard.slices(device)) {
      count += CountRows(own.present) * own.columns().size();
    }
  }
  return count;
}

absl::Status CheckCopy(const NodeTable& table) {
  const CopyRole wanted = table.is_primary ? CopyRole::kLeads : CopyRole::kFollows;
  if (table.copy->role() == wanted) return absl::OkStatus();
  return OnItsWay(table.spec, "the role of its copy is");
}

void AddWindows(const TableSpec& spec, const Slice& slice, std::vector<RowWindow>& windows) {
  const ColumnRange columns{slice.column_begin, slice.column_end};
  const auto add = [&](RowInterval rows) { windows.push_back({spec.id, columns, rows}); };
  if (!spec.zch.has_value()) {
    const auto at_once =
        static_cast<std::int64_t>(RowsPerBlock(spec, columns, /*with_state=*/true));
    for (std::int64_t row = slice.row_begin; row < slice.row_end; row += at_once) {
      add({row, std::min(row + at_once, slice.row_end)});
    }
    return;
  }
  const std::uint32_t last = RowGranuleOf(spec, slice.row_end - 1);
  for (std::uint32_t unit = RowGranuleOf(spec, slice.row_begin); unit <= last; ++unit) {
    const UnitShape shape = ShapeOfUnit(spec, unit, columns);
    for (std::uint32_t chunk = 0; chunk < shape.chunks(); ++chunk) add(RowsOfChunk(shape, chunk));
  }
}

absl::Status Restore(const CopyImage& image, NodeTable& table) {
  TableShard& shard = *table.shard();
  if (!SameShape(image.spec, table.spec)) {
    return absl::DataLossError(
        absl::StrCat("the image of table ", table.spec.name, " has a spec of another table"));
  }
  shard.replica_position() = image.position;
  // It begins an order of its own, as a new primary does (LeadIfItMay).
  if (table.is_primary) shard.replica_position().reign = 0;
  if (image.has_all) table.copy->RepeatConfirmed();
  if (table.is_primary) table.primary_since = image.primary_since;
  table.spec_history = image.history;
  for (std::uint32_t device = 0; device < kDevicesPerNodeMax; ++device) {
    if (!shard.devices().Has(device)) continue;
    EMBLA_RETURN_IF_ERROR(shard.SetSpec(device, image.spec, image.spec_version));
  }
  return absl::OkStatus();
}

absl::Status Restore(const TableImage& image, absl::Time now, NodeTable& table) {
  const bool fits = image.windows.size() == table.shards.size() &&
                    image.copy.has_value() == (table.copy != nullptr) &&
                    image.groups.has_value() == (table.group_copies != nullptr);
  if (!fits) {
    return absl::DataLossError(
        absl::StrCat("the image of table ", table.spec.name, " is of another kind of table"));
  }
  for (std::size_t group = 0; group < table.shards.size(); ++group) {
    TableShard& shard = *table.shards[group];
    shard.replay_windows().Import(image.windows[group], now);
    if (image.highest_step > 0) shard.step_bound().Note(image.highest_step, now);
    // Rows that are evicted before their window comes are not those that the ids lost.
    if (shard.evictions() != nullptr) shard.evictions()->Skip(true);
  }
  if (image.groups.has_value()) table.group_copies->Restore(*image.groups);
  return image.copy.has_value() ? Restore(*image.copy, table) : absl::OkStatus();
}

}  // namespace

std::vector<PlannedTable> PlannedTables(const NodeTables& tables) {
  std::vector<PlannedTable> all;
  for (const TablePtr& plan : tables.plan->tables().pointers()) {
    PlannedTable planned{.spec = &plan->spec};
    const auto here = tables.tables.find(ToInt(plan->spec.id));
    if (here != tables.tables.end()) planned.table = here->second.get();
    const auto steps = tables.steps.find(ToInt(plan->spec.id));
    if (steps != tables.steps.end()) planned.steps = steps->second.get();
    const bool is_copy = planned.table != nullptr && planned.table->copy != nullptr;
    bool is_planned = false;
    for (const std::vector<Slice>& tiling : plan->replicas) {
      std::vector<Slice> own;
      std::ranges::copy_if(tiling, std::back_inserter(own),
                           [&](const Slice& slice) { return slice.device.node == tables.self; });
      is_planned |= !own.empty();
      if (!is_copy || !own.empty()) planned.slices.push_back(std::move(own));
    }
    if (!is_planned) planned.slices.clear();
    if (is_planned || planned.table != nullptr) all.push_back(std::move(planned));
  }
  return all;
}

std::vector<RowWindow> WindowsOf(const std::vector<PlannedTable>& tables) {
  std::vector<RowWindow> windows;
  for (const PlannedTable& planned : tables) {
    if (planned.slices.empty()) continue;
    // All groups have the same rows here.
    for (const Slice& slice : planned.slices.front()) AddWindows(*planned.spec, slice, windows);
  }
  return windows;
}

absl::Status CheckAtRest(const PlannedTable& planned) {
  if (planned.table == nullptr) return OnItsWay(*planned.spec, "a unit that the plan has here is");
  const NodeTable& table = *planned.table;
  if (table.copy != nullptr) return CheckCopy(table);
  for (std::size_t group = 0; group < table.shards.size(); ++group) {
    TableShard& shard = *table.shards[group];
    if (HasStaged(shard)) return OnItsWay(table.spec, "a unit is");
    std::int64_t values = 0;
    for (const Slice& slice :
         planned.slices.empty() ? std::vector<Slice>() : planned.slices[group]) {
      if (CountPresent(shard, slice) != slice.row_end - slice.row_begin) {
        return OnItsWay(table.spec, "a unit, or the plan that has it elsewhere, is");
      }
      values += (slice.row_end - slice.row_begin) * (slice.column_end - slice.column_begin);
    }
    if (values != CountAll(shard)) {
      return OnItsWay(table.spec, "a unit, or the plan that has it here, is");
    }
  }
  return absl::OkStatus();
}

TableImage ImageOf(const PlannedTable& planned) {
  const NodeTable& table = *planned.table;
  TableImage image;
  image.table = table.spec.id;
  for (const std::shared_ptr<TableShard>& shard : table.shards) {
    image.windows.push_back(shard->replay_windows().Export());
    image.highest_step = std::max(image.highest_step, shard->step_bound().highest());
  }
  if (planned.steps != nullptr) image.first_unmade_step = planned.steps->first_unmade();
  if (table.group_copies != nullptr) image.groups = table.group_copies->image();
  if (table.copy == nullptr) return image;
  TableShard& shard = *table.shard();
  image.copy = CopyImage{.position = shard.replica_position(),
                         .has_all = table.copy->is_counted(),
                         .primary_since = table.primary_since,
                         .spec = shard.spec(shard.lead_device()),
                         .spec_version = shard.spec_version(shard.lead_device()),
                         .history = table.spec_history};
  return image;
}

absl::StatusOr<NodeTablesPtr> WithImage(const NodeTables& tables, const NodeImage& image,
                                        absl::Time now) {
  auto restored = std::make_shared<NodeTables>(tables);
  if (image.tables.size() != tables.tables.size()) {
    return absl::DataLossError(absl::StrCat("the image has ", image.tables.size(),
                                            " tables, its plan has ", tables.tables.size(),
                                            " on this node"));
  }
  for (const TableImage& from : image.tables) {
    const auto it = restored->tables.find(ToInt(from.table));
    if (it == restored->tables.end()) {
      return absl::DataLossError(
          absl::StrCat("the image has table ", ToInt(from.table), ", its plan does not"));
    }
    NodeTable table = *it->second;
    EMBLA_RETURN_IF_ERROR(Restore(from, now, table));
    it->second = std::make_shared<const NodeTable>(std::move(table));
    const auto steps = restored->steps.find(ToInt(from.table));
    if (steps != restored->steps.end() && from.first_unmade_step > 0) {
      steps->second->NoteMade(from.first_unmade_step - 1);
    }
  }
  return restored;
}

}  // namespace embla
