#include "client/route/step_units.h"

#include <algorithm>

#include "core/plan/slice_map.h"

namespace embla::client {
namespace {

// The granule whose first row is `row`, which is a border.
std::uint32_t GranuleAt(const TableSpec& spec, std::int64_t row) {
  return static_cast<std::uint32_t>((row * spec.row_granules + spec.rows - 1) / spec.rows);
}

}  // namespace

bool StepUnits::CutRows::Has(std::int64_t row) const {
  return std::any_of(rows.begin(), rows.end(),
                     [row](const auto& range) { return range.first <= row && row < range.second; });
}

StepUnits::StepUnits(const TableSpec& spec, std::span<const Slice> slices) : spec_(&spec) {
  for (const ColumnCut& columns : CutColumns(slices)) {
    const Cut& cut = cuts_.emplace_back(columns.column_begin, columns.column_end,
                                        columns.column_begin / spec_->column_granule_width);
    for (const std::uint32_t number : columns.slices) {
      const Slice& slice = slices[number];
      by_node_[slice.device.node].Include(UnitSet({.column_granule = cut.granule,
                                                   .begin = GranuleAt(*spec_, slice.row_begin),
                                                   .end = GranuleAt(*spec_, slice.row_end)}));
    }
  }
}

std::vector<StepUnits::CutRows> StepUnits::RowsOf(const UnitSet& units) const {
  std::vector<CutRows> all;
  const std::vector<UnitSet::Run> runs = units.runs();
  for (const Cut& cut : cuts_) {
    CutRows here{cut.column_begin, cut.column_end, {}};
    for (const UnitSet::Run& run : runs) {
      if (run.column_granule != cut.granule || run.begin >= spec_->row_granules) continue;
      here.rows.emplace_back(spec_->RowGranuleBegin(run.begin),
                             spec_->RowGranuleBegin(std::min(run.end, spec_->row_granules)));
    }
    if (!here.rows.empty()) all.push_back(std::move(here));
  }
  return all;
}

}  // namespace embla::client
