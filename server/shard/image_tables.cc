#include "server/shard/image_tables.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/plan/table_options.h"
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
  if (!shard.devices().Has(slice.device.index)) return count;
  for (const OwnSlice& own : shard.slices(slice.device.index)) {
    if (own.columns() != ColumnRange{slice.column_begin, slice.column_end}) continue;
    count += CountRows(own.present.CommonWith(RowIntervals({slice.row_begin, slice.row_end})));
  }
  return count;
}

// Rows that are present, on all devices.
std::vector<PlacedRows> PlacesOf(TableShard& shard) {
  std::vector<PlacedRows> places;
  for (std::uint32_t device = 0; device < kDevicesPerNodeMax; ++device) {
    if (!shard.devices().Has(device)) continue;
    for (const OwnSlice& own : shard.slices(device)) {
      if (!own.present.empty()) places.push_back({own.slice, own.present});
    }
  }
  return places;
}

// Whether all rows are where the plan has them, and no others are here.
bool IsAsPlanned(const PlannedTable& planned, std::size_t group,
                 const std::vector<PlacedRows>& places) {
  std::int64_t values = 0;
  for (const PlacedRows& place : places) values += CountRows(place.present) * place.slice.columns();
  for (const Slice& slice : planned.slices.empty() ? std::vector<Slice>() : planned.slices[group]) {
    if (CountPresent(*planned.table->shards[group], slice) != slice.rows()) return false;
    values -= slice.rows() * slice.columns();
  }
  return values == 0;
}

absl::Status CheckCopy(const NodeTable& table) {
  const CopyRole wanted = table.is_primary ? CopyRole::kLeads : CopyRole::kFollows;
  if (table.copy->role() == wanted) return absl::OkStatus();
  return OnItsWay(table.spec, "the role of its copy is");
}

void AddWindows(const TableSpec& spec, ColumnRange columns, RowInterval all,
                std::vector<RowWindow>& windows) {
  const auto add = [&](RowInterval rows) { windows.push_back({spec.id, columns, rows}); };
  if (!spec.zch.has_value()) {
    const auto at_once =
        static_cast<std::int64_t>(RowsPerBlock(spec, columns, /*with_state=*/true));
    for (std::int64_t row = all.begin; row < all.end; row += at_once) {
      add({row, std::min(row + at_once, all.end)});
    }
    return;
  }
  const std::uint32_t last = RowGranuleOf(spec, all.end - 1);
  for (std::uint32_t unit = RowGranuleOf(spec, all.begin); unit <= last; ++unit) {
    const UnitShape shape = ShapeOfUnit(spec, unit, columns);
    for (std::uint32_t chunk = 0; chunk < shape.chunks(); ++chunk) add(RowsOfChunk(shape, chunk));
  }
}

void AddWindows(const TableSpec& spec, const std::vector<Slice>& slices,
                std::vector<RowWindow>& windows) {
  for (const Slice& slice : slices) {
    AddWindows(spec, {slice.column_begin, slice.column_end}, {slice.row_begin, slice.row_end},
               windows);
  }
}

// A window may be on several devices.
void AddWindows(const TableSpec& spec, const std::vector<PlacedRows>& places,
                std::vector<RowWindow>& windows) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, RowIntervals> rows;  // By columns.
  for (const PlacedRows& place : places) {
    RowIntervals& here = rows[{place.slice.column_begin, place.slice.column_end}];
    for (const RowInterval& interval : place.present.intervals()) here.Insert(interval);
  }
  for (const auto& [columns, here] : rows) {
    for (const RowInterval& interval : here.intervals()) {
      AddWindows(spec, {columns.first, columns.second}, interval, windows);
    }
  }
}

TableImage ImageOf(const PlannedTable& planned) {
  const NodeTable& table = *planned.table;
  TableImage image;
  image.table = table.spec.id;
  for (const std::shared_ptr<TableShard>& shard : table.shards) {
    image.windows.push_back(shard->rest());
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

// Rows of the slice that are not present were not here, or coming in.
void KeepPresent(const TableSpec& spec, const RowIntervals& present, OwnSlice& own) {
  RowIntervals absent(own.rows());
  for (const RowInterval& rows : present.intervals()) absent.Erase(rows);
  for (const RowInterval& rows : absent.intervals()) {
    own.present.Erase(rows);
    if (!spec.zch.has_value()) continue;
    const std::uint32_t last = RowGranuleOf(spec, rows.end - 1);
    for (std::uint32_t unit = RowGranuleOf(spec, rows.begin); unit <= last; ++unit) {
      MatchBucket(own, {spec.RowGranuleBegin(unit), spec.RowGranuleBegin(unit + 1)});
    }
  }
}

// Requires: nobody else knows the table.
void KeepPresent(const TableSpec& spec, const std::vector<PlacedRows>& places, TableShard& shard) {
  const auto known = [&shard](const PlacedRows& place) -> RowIntervals& {
    const ColumnRange columns{place.slice.column_begin, place.slice.column_end};
    return shard.units().CutOf(columns).present;
  };
  for (const PlacedRows& place : places) {
    known(place).Erase({place.slice.row_begin, place.slice.row_end});
  }
  for (const PlacedRows& place : places) {
    for (const RowInterval& rows : place.present.intervals()) known(place).Insert(rows);
    for (OwnSlice& own : shard.slices(place.slice.device.index)) {
      if (own.slice == place.slice) KeepPresent(spec, place.present, own);
    }
    shard.CountStorage(place.slice.device.index);
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
                    (!image.places.has_value() || image.places->size() == table.shards.size()) &&
                    image.copy.has_value() == (table.copy != nullptr) &&
                    image.groups.has_value() == (table.group_copies != nullptr);
  if (!fits) {
    return absl::DataLossError(
        absl::StrCat("the image of table ", table.spec.name, " is of another kind of table"));
  }
  for (std::size_t group = 0; group < table.shards.size(); ++group) {
    TableShard& shard = *table.shards[group];
    shard.rest() = image.windows[group];
    if (image.highest_step > 0) shard.step_bound().Note(image.highest_step, now);
    // Rows that are evicted before their window comes are not those that the ids lost.
    if (shard.evictions() != nullptr) shard.evictions()->Skip(true);
    if (image.places.has_value()) KeepPresent(table.spec, (*image.places)[group], shard);
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

absl::Status AddTable(const PlannedTable& planned, NodeImage& image,
                      std::vector<RowWindow>& windows) {
  if (planned.table == nullptr) {
    return OnItsWay(*planned.spec, "what the plan has here of it is");
  }
  if (planned.table->copy != nullptr) {
    EMBLA_RETURN_IF_ERROR(CheckCopy(*planned.table));
    if (!planned.slices.empty()) {
      image.tables.push_back(ImageOf(planned));
      AddWindows(*planned.spec, planned.slices.front(), windows);
    }
    return absl::OkStatus();
  }
  std::vector<std::vector<PlacedRows>> places;
  bool is_as_planned = true;
  for (std::size_t group = 0; group < planned.table->shards.size(); ++group) {
    places.push_back(PlacesOf(*planned.table->shards[group]));
    is_as_planned &= IsAsPlanned(planned, group, places.back());
  }
  // All units have left, each with its record of updates.
  if (places.front().empty() && planned.slices.empty()) return absl::OkStatus();
  TableImage& table = image.tables.emplace_back(ImageOf(planned));
  // All groups have the same rows here.
  if (is_as_planned) {
    AddWindows(*planned.spec, planned.slices.front(), windows);
  } else {
    AddWindows(*planned.spec, places.front(), windows);
    table.places = std::move(places);
  }
  return absl::OkStatus();
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
