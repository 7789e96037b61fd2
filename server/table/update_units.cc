#include "server/table/update_units.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

// The interval that has `row`, or an empty one.
RowInterval IntervalWith(const RowIntervals& intervals, std::int64_t row) {
  const auto all = intervals.intervals();
  const auto next = std::upper_bound(
      all.begin(), all.end(), row,
      [](std::int64_t value, const RowInterval& interval) { return value < interval.begin; });
  return next != all.begin() && std::prev(next)->Contains(row) ? *std::prev(next) : RowInterval();
}

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
  last_.resize(number_of_.size());
  for (std::size_t number = 0; number < parts.size(); ++number) {
    EMBLA_RETURN_IF_ERROR(Sort(table, *parts[number], number, bounds));
  }
  for (Touched& touched : touched_) {
    std::vector<std::uint32_t>& chunks = touched.update.chunks;
    std::sort(chunks.begin(), chunks.end());
    chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
    touched.update.session = batch.session;
    touched.update.seq = batch.seq;
    touched.update.first_incomplete = batch.first_incomplete;
    touched.answer = touched.gate->Check(touched.update);
    if (touched.applies() && !touched.present) return table.RowsAreMoving();
  }
  return absl::OkStatus();
}

absl::Status UpdateUnits::Sort(TableShard& table, const UpdatePart& part, std::size_t number,
                               BoundsMode bounds) {
  const ColumnRange columns{part.column_begin, part.column_end};
  const TableUnits& units = table.units();
  for (const RowId id : part.ids) {
    if (!table.InTable(id)) {
      ++out_of_range_;
      if (bounds == BoundsMode::kError) return table.OutOfRange(id);
      continue;
    }
    const std::int64_t row = table.id_rows().RowOf(id);
    std::uint32_t found = 0;
    for (std::size_t c = 0; c < units.cuts().size(); ++c) {
      const TableUnits::Cut& cut = units.cuts()[c];
      if (cut.Meets(columns) && SortRow(units, c, row, number)) found += cut.columns.size();
    }
    if (found < columns.size()) return table.RowsAreMoving();
  }
  return absl::OkStatus();
}

bool UpdateUnits::SortRow(const TableUnits& units, std::size_t cut_number, std::int64_t row,
                          std::size_t number) {
  const TableUnits::Cut& cut = units.cuts()[cut_number];
  Last& last = last_[cut_number];
  if (!last.rest.Contains(row)) last.rest = IntervalWith(cut.rest, row);
  if (last.rest.Contains(row)) {
    has_rest_ = true;
    present_ += cut.columns.size();
    return true;
  }
  if (last.touched == 0 || !touched_[last.touched - 1].HasRow(row)) {
    const std::uint32_t gate = cut.GateOf(units.GranuleOf(row));
    if (gate == TableUnits::Cut::kNoGate) return false;
    std::uint32_t& place = number_of_[cut_number][gate];
    Touch(place, cut.gates[gate], cut.present.Contains(row));
    last.touched = place;
  }
  Touched& touched = touched_[last.touched - 1];
  touched.Add(row, number);
  if (touched.present) present_ += cut.columns.size();
  return true;
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

void UpdateUnits::Touched::Add(std::int64_t row, std::size_t part) {
  if (counts_chunks) {
    const auto chunk = static_cast<std::uint32_t>((row - shape.row_begin) / shape.chunk_rows);
    if (update.chunks.empty() || update.chunks.back() != chunk) update.chunks.push_back(chunk);
  }
  if (parts.empty() || parts.back() != part) parts.push_back(part);
}

void UpdateUnits::Touch(std::uint32_t& number, const TableUnits::Cut::Gated& gated, bool present) {
  if (number != 0) return;
  Touched& touched = touched_.emplace_back();
  touched.row_granule = gated.row_granule;
  touched.shape = gated.shape;
  touched.gate = gated.gate;
  touched.present = present;
  touched.counts_chunks = !gated.gate->IsAtRest();
  number = static_cast<std::uint32_t>(touched_.size());
}

void UpdateUnits::Record() const {
  for (const Touched& touched : touched_) {
    if (touched.applies()) touched.gate->Apply(touched.update);
  }
}

bool UpdateUnits::applies_nothing() const {
  return !applies_rest() && std::none_of(touched_.begin(), touched_.end(),
                                         [](const Touched& touched) { return touched.applies(); });
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
  return skipped;
}

}  // namespace embla
