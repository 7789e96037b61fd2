#include "client/route/unit_hints.h"

#include <algorithm>
#include <utility>

#include "core/plan/slice_map.h"

namespace embla::client {
namespace {

// Whether `row` is where a row granule begins, or the table ends.
bool IsBorder(const TableSpec& spec, std::int64_t row) {
  if (row < 0 || row > spec.rows) return false;
  const std::int64_t granule = (row * spec.row_granules + spec.rows - 1) / spec.rows;
  return granule == spec.row_granules ||
         spec.RowGranuleBegin(static_cast<std::uint32_t>(granule)) == row;
}

}  // namespace

bool UnitHints::Include(const TablePlan& table, std::span<const UnitHint> hints) {
  std::vector<Cut> cuts = cuts_;
  if (cuts.empty()) {
    for (const ColumnCut& columns : CutColumns(table.primary())) {
      cuts.push_back({columns.column_begin, columns.column_end, {}});
    }
  }
  bool is_new = false;
  for (const UnitHint& hint : hints) {
    const bool is_possible = hint.row_begin < hint.row_end &&
                             IsBorder(table.spec, hint.row_begin) &&
                             IsBorder(table.spec, hint.row_end);
    if (!is_possible) continue;
    for (Cut& cut : cuts) {
      // A hint about a part of a cut's columns is about no unit.
      if (cut.column_begin < hint.column_begin || hint.column_end < cut.column_end) continue;
      const Run run{hint.row_begin, hint.row_end, hint.owner, hint.epoch};
      is_new = Include(run, cut.runs) || is_new;
    }
  }
  std::size_t runs = 0;
  for (const Cut& cut : cuts) runs += cut.runs.size();
  if (!is_new || runs > kRunsMax) return false;
  cuts_ = std::move(cuts);
  return true;
}

bool UnitHints::Include(const Run& hint, Runs& runs) {
  Runs all;
  const auto add = [&all](Run run, std::int64_t begin, std::int64_t end) {
    if (begin >= end) return;
    const bool joins = !all.empty() && all.back().row_end == begin &&
                       all.back().owner == run.owner && all.back().epoch == run.epoch;
    if (!joins) all.push_back({begin, begin, run.owner, run.epoch});
    all.back().row_end = end;
  };
  bool is_new = false;
  std::int64_t next = hint.row_begin;  // The hint's rows before are done.
  for (const Run& run : runs) {
    const std::int64_t gap_end = std::min(hint.row_end, run.row_begin);
    is_new = is_new || next < gap_end;
    add(hint, next, gap_end);
    const std::int64_t begin = std::clamp(hint.row_begin, run.row_begin, run.row_end);
    const std::int64_t end = std::clamp(hint.row_end, begin, run.row_end);
    const bool is_newer = hint.epoch > run.epoch;
    is_new = is_new || (is_newer && begin < end);
    add(run, run.row_begin, begin);
    add(is_newer ? hint : run, begin, end);
    add(run, end, run.row_end);
    next = std::max(next, std::min(run.row_end, hint.row_end));
  }
  is_new = is_new || next < hint.row_end;
  add(hint, next, hint.row_end);
  runs = std::move(all);
  return is_new;
}

const UnitHints::Cut* UnitHints::CutAt(std::uint32_t column_begin) const {
  const auto found = std::ranges::find(cuts_, column_begin, &Cut::column_begin);
  return found == cuts_.end() ? nullptr : &*found;
}

std::vector<Slice> UnitHints::Applied(std::span<const Slice> slices) const {
  std::vector<Slice> applied;
  for (const ColumnCut& columns : CutColumns(slices)) {
    const Cut* const cut = CutAt(columns.column_begin);
    const std::span<const Run> runs = cut == nullptr ? std::span<const Run>() : cut->runs;
    auto run = runs.begin();
    for (const std::uint32_t number : columns.slices) {
      Slice piece = slices[number];
      piece.column_begin = columns.column_begin;
      piece.column_end = columns.column_end;
      while (piece.row_begin < slices[number].row_end) {
        while (run != runs.end() && run->row_end <= piece.row_begin) ++run;
        const bool is_hinted = run != runs.end() && run->row_begin <= piece.row_begin;
        piece.row_end = slices[number].row_end;
        if (run != runs.end()) {
          piece.row_end = std::min(piece.row_end, is_hinted ? run->row_end : run->row_begin);
        }
        piece.device = is_hinted ? DeviceId{run->owner, 0} : slices[number].device;
        applied.push_back(piece);
        piece.row_begin = piece.row_end;
      }
    }
  }
  return applied;
}

}  // namespace embla::client
