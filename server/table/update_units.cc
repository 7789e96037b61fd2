#include "server/table/update_units.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

std::pair<std::uint32_t, std::int64_t> PlaceOf(const UnitShape& shape) {
  return {shape.column_begin, shape.row_begin};
}

}  // namespace

absl::Status UpdateUnits::Decide(TableShard& table, TableParts parts, const UpdateBatch& batch,
                                 BoundsMode bounds) {
  rows_ = table.rows();
  table.units().FindRest();
  for (const TableUnits::Cut& cut : table.units().cuts()) {
    number_of_.emplace_back(cut.gates.size(), 0);
  }
  place_of_.resize(table.units().granules(), 0);
  for (std::size_t number = 0; number < parts.size(); ++number) {
    EMBLA_RETURN_IF_ERROR(Sort(table, *parts[number], number, bounds));
  }
  if (batch.is_step) TouchAll(table, batch.claim->units);
  for (Touched& touched : touched_) {
    std::vector<std::uint32_t>& chunks = touched.update.chunks;
    std::sort(chunks.begin(), chunks.end());
    chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
    touched.update.session = batch.session;
    touched.update.seq = batch.seq;
    touched.update.first_incomplete = batch.first_incomplete;
    touched.answer = touched.gate->Check(touched.update);
    if (touched.applies() && !touched.present) return table.RowsAreMoving();
    if (touched.refused()) table.units().fold().Cancel();
  }
  return absl::OkStatus();
}

void UpdateUnits::TouchAll(TableShard& table, const UnitSet& units) {
  const std::uint32_t width = table.spec(table.lead_device()).column_granule_width;
  const std::span<const TableUnits::Cut> cuts = table.units().cuts();
  for (std::size_t c = 0; c < cuts.size(); ++c) {
    const TableUnits::Cut& cut = cuts[c];
    const std::uint32_t column_granule = cut.columns.begin / width;
    for (std::size_t gate = 0; gate < cut.gates.size(); ++gate) {
      const TableUnits::Cut::Gated& gated = cut.gates[gate];
      if (!units.Has(column_granule, gated.row_granule)) continue;
      Touch(number_of_[c][gate], gated, cut.present.Contains(gated.shape.row_begin));
    }
    for (std::uint32_t granule = 0; !has_rest_ && granule < cut.is_rest.size(); ++granule) {
      has_rest_ = cut.is_rest[granule] != 0 && units.Has(column_granule, granule);
    }
  }
}

// One pass over the ids finds their granules, and all else is done once per granule: beside the
// rows that costs a request little, however many units have moved.
absl::Status UpdateUnits::Sort(TableShard& table, const UpdatePart& part, std::size_t number,
                               BoundsMode bounds) {
  const TableUnits& units = table.units();
  const IdRows id_rows = table.id_rows();
  for (const Granule& granule : granules_) place_of_[granule.number] = 0;
  granules_.clear();
  std::size_t outside = 0;
  for (const RowId id : part.ids) {
    if (table.InTable(id)) {
      const std::uint32_t granule = units.GranuleOf(id_rows.RowOf(id));
      if (place_of_[granule] != 0) continue;
      granules_.push_back({granule});
      place_of_[granule] = static_cast<std::uint32_t>(granules_.size());
      continue;
    }
    ++outside;
    if (bounds != BoundsMode::kError) continue;
    out_of_range_ += outside;
    return table.OutOfRange(id);
  }
  out_of_range_ += outside;

  counts_chunks_ = false;
  bool all_alike = true;
  for (Granule& granule : granules_) {
    if (!SortGranule(units, granule, {part.column_begin, part.column_end}, number)) {
      return table.RowsAreMoving();
    }
    all_alike = all_alike && granule.present_columns == granules_.front().present_columns;
  }
  if (!all_alike || counts_chunks_) {
    CountRows(table, part);
  } else if (!granules_.empty()) {
    present_ += (part.ids.size() - outside) * granules_.front().present_columns;
  }
  return absl::OkStatus();
}

bool UpdateUnits::SortGranule(const TableUnits& units, Granule& granule, ColumnRange columns,
                              std::size_t number) {
  std::uint32_t found = 0;
  for (std::size_t c = 0; c < units.cuts().size(); ++c) {
    const TableUnits::Cut& cut = units.cuts()[c];
    if (!cut.Meets(columns)) continue;
    bool present = cut.is_rest[granule.number] != 0;
    if (present) {
      has_rest_ = true;
    } else {
      const std::uint32_t gate = cut.GateOf(granule.number);
      if (gate == TableUnits::Cut::kNoGate) continue;
      const TableUnits::Cut::Gated& gated = cut.gates[gate];
      present = cut.present.Contains(gated.shape.row_begin);
      Touched& touched = Touch(number_of_[c][gate], gated, present);
      touched.parts.push_back(number);
      counts_chunks_ = counts_chunks_ || touched.counts_chunks;
    }
    found += cut.columns.size();
    if (present) granule.present_columns += cut.columns.size();
  }
  return found >= columns.size();
}

void UpdateUnits::CountRows(TableShard& table, const UpdatePart& part) {
  const TableUnits& units = table.units();
  for (const RowId id : part.ids) {
    if (!table.InTable(id)) continue;
    const std::int64_t row = table.id_rows().RowOf(id);
    const std::uint32_t granule = units.GranuleOf(row);
    present_ += granules_[place_of_[granule] - 1].present_columns;
    for (std::size_t c = 0; counts_chunks_ && c < units.cuts().size(); ++c) {
      const TableUnits::Cut& cut = units.cuts()[c];
      const std::uint32_t gate = cut.GateOf(granule);
      if (gate == TableUnits::Cut::kNoGate || !cut.Meets({part.column_begin, part.column_end})) {
        continue;
      }
      touched_[number_of_[c][gate] - 1].AddChunkOf(row);
    }
  }
}

absl::Status UpdateUnits::Repeat(TableShard& table, TableParts parts,
                                 std::span<const DecidedUnit> units, bool applies_rest) {
  rows_ = table.rows();
  has_rest_ = applies_rest_ = applies_rest;
  const TableSpec& spec = table.spec(table.lead_device());
  for (const DecidedUnit& unit : units) {
    if (unit.row_granule >= spec.row_granules) {
      return absl::DataLossError(
          absl::StrCat("table ", table.name(), " has no row granule ", unit.row_granule));
    }
    Touched& touched = touched_.emplace_back();
    touched.row_granule = unit.row_granule;
    touched.shape = ShapeOfUnit(spec, unit.row_granule, unit.columns);
    touched.answer.status = unit.applies ? PartStatus::kApplied : PartStatus::kDuplicate;
  }
  std::sort(touched_.begin(), touched_.end(),
            [](const Touched& a, const Touched& b) { return PlaceOf(a.shape) < PlaceOf(b.shape); });
  for (const UpdatePart* const part : parts) {
    for (const RowId id : part->ids) {
      if (!table.InTable(id)) {
        ++out_of_range_;
        continue;
      }
      EMBLA_RETURN_IF_ERROR(
          RepeatRow(table, table.id_rows().RowOf(id), {part->column_begin, part->column_end}));
    }
  }
  return absl::OkStatus();
}

absl::Status UpdateUnits::RepeatRow(TableShard& table, std::int64_t row, ColumnRange columns) {
  for (const TableUnits::Cut& cut : table.units().cuts()) {
    if (!cut.Meets(columns)) continue;
    const bool present = cut.present.Contains(row);
    if (present) present_ += cut.columns.size();
    // The last unit that begins at the row or before it.
    auto unit = std::upper_bound(
        touched_.begin(), touched_.end(), std::pair(cut.columns.begin, row),
        [](const auto& place, const Touched& t) { return place < PlaceOf(t.shape); });
    const bool found = unit != touched_.begin() && (--unit)->Has(row, cut.columns);
    if (present || !(found ? unit->applies() : applies_rest_)) continue;
    return absl::DataLossError(
        absl::StrCat("table ", table.name(), " row ", row, " was updated, but is not here"));
  }
  return absl::OkStatus();
}

void UpdateUnits::Touched::AddChunkOf(std::int64_t row) {
  if (!counts_chunks) return;
  const auto chunk = static_cast<std::uint32_t>((row - shape.row_begin) / shape.chunk_rows);
  if (update.chunks.empty() || update.chunks.back() != chunk) update.chunks.push_back(chunk);
}

UpdateUnits::Touched& UpdateUnits::Touch(std::uint32_t& number, const TableUnits::Cut::Gated& gated,
                                         bool present) {
  if (number != 0) return touched_[number - 1];
  Touched& touched = touched_.emplace_back();
  touched.row_granule = gated.row_granule;
  touched.shape = gated.shape;
  touched.gate = gated.gate;
  touched.present = present;
  touched.counts_chunks = !gated.gate->IsAtRest();
  number = static_cast<std::uint32_t>(touched_.size());
  return touched;
}

void UpdateUnits::Record(const UpdateBatch& batch) const {
  for (const Touched& touched : touched_) {
    if (!touched.applies()) continue;
    touched.gate->Apply(touched.update);
    for (const UpdateName& name : batch.contributors) {
      UnitUpdate update;
      update.session = name.session;
      update.seq = name.seq;
      update.first_incomplete = name.first_incomplete;
      // A sender may have given the number to another update meanwhile.
      if (touched.gate->Check(update).status == PartStatus::kApplied) touched.gate->Apply(update);
    }
  }
}

bool UpdateUnits::applies_nothing() const {
  return !applies_rest() && std::none_of(touched_.begin(), touched_.end(),
                                         [](const Touched& touched) { return touched.applies(); });
}

bool UpdateUnits::leaves_something() const {
  return std::any_of(touched_.begin(), touched_.end(),
                     [](const Touched& touched) { return !touched.applies(); });
}

bool UpdateUnits::repeats_something() const {
  if (touched_.empty()) return !applies_rest();  // Without rows: its record may be on its way too.
  return (has_rest_ && !applies_rest_) ||
         std::any_of(touched_.begin(), touched_.end(), [](const Touched& touched) {
           return touched.answer.status == PartStatus::kDuplicate;
         });
}

std::vector<DecidedUnit> UpdateUnits::Decisions() const {
  std::vector<DecidedUnit> decisions;
  for (const Touched& touched : touched_) {
    decisions.push_back({touched.row_granule,
                         {touched.shape.column_begin, touched.shape.column_end},
                         touched.applies()});
  }
  return decisions;
}

RowIntervals UpdateUnits::Skipped(ColumnRange columns) const {
  RowIntervals skipped;
  if (!applies_rest_) skipped.Insert({0, rows_});
  for (const Touched& touched : touched_) {
    const UnitShape& shape = touched.shape;
    if (columns != ColumnRange{shape.column_begin, shape.column_end}) continue;
    const RowInterval rows{shape.row_begin, shape.row_end};
    touched.applies() ? skipped.Erase(rows) : skipped.Insert(rows);
  }
  for (const RowInterval& rows : left_alone_.intervals()) skipped.Insert(rows);
  return skipped;
}

}  // namespace embla
