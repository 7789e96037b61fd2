#include "server/coordinator/unit_tiling.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/plan/replica_groups.h"
#include "core/plan/slice_map.h"

namespace embla {
namespace {

// The granule whose first row is `row`; `row` is a border. Borders are floor(i * rows / granules).
std::uint32_t GranuleAt(const TableSpec& spec, std::int64_t row) {
  std::uint32_t low = 0;
  std::uint32_t high = spec.row_granules;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (spec.RowGranuleBegin(middle) < row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

Slice SliceOf(const TableSpec& spec, const UnitCut& cut, const GranuleRun& run, DeviceId device) {
  return {.row_begin = spec.RowGranuleBegin(run.begin),
          .row_end = spec.RowGranuleBegin(run.end),
          .column_begin = cut.column_begin,
          .column_end = cut.column_end,
          .device = device};
}

}  // namespace

std::vector<UnitCut> CutsOf(const TablePlan& table) {
  const std::vector<Slice>& slices = table.primary();
  std::vector<UnitCut> cuts;
  for (const ColumnCut& columns : CutColumns(slices)) {
    UnitCut cut{.column_begin = columns.column_begin,
                .column_end = columns.column_end,
                .column_granule = columns.column_begin / table.spec.column_granule_width,
                .owners = std::vector<DeviceId>(table.spec.row_granules)};
    for (const std::uint32_t index : columns.slices) {
      const Slice& slice = slices[index];
      std::fill(cut.owners.begin() + GranuleAt(table.spec, slice.row_begin),
                cut.owners.begin() + GranuleAt(table.spec, slice.row_end), slice.device);
    }
    cuts.push_back(std::move(cut));
  }
  return cuts;
}

std::vector<Slice> SlicesOf(const TableSpec& spec, const std::vector<UnitCut>& cuts) {
  std::vector<Slice> slices;
  for (const UnitCut& cut : cuts) {
    for (GranuleRun run; run.begin < spec.row_granules; run.begin = run.end) {
      run.end = RunAround(cut, run.begin).end;
      slices.push_back(SliceOf(spec, cut, run, cut.owners[run.begin]));
    }
  }
  return slices;
}

void SetTiling(const Plan& plan, std::vector<Slice> tiling, TablePlan& table) {
  for (std::size_t group = 1; group < table.replicas.size(); ++group) {
    table.replicas[group] = tiling;
    for (Slice& slice : table.replicas[group]) {
      const NodeSpec* const node = plan.FindNode(slice.device.node);
      EMBLA_CHECK(node != nullptr);
      slice.device = CopiesOf(table.spec, *node, slice.device)[group];
    }
  }
  table.replicas[0] = std::move(tiling);
}

std::uint32_t DevicesForUnits(const TableSpec& table, const NodeSpec& node) {
  return DevicesPerGroup(node.name, node.devices.size(), table.replica_groups).value_or(0);
}

std::vector<DeviceId> CopiesOf(const TableSpec& table, const NodeSpec& node, DeviceId device) {
  const std::uint32_t per_group = DevicesForUnits(table, node);
  std::vector<DeviceId> copies;
  for (std::uint32_t group = 0; group < table.replica_groups; ++group) {
    copies.push_back({device.node, DeviceOfGroup(device.index, group, per_group)});
  }
  return copies;
}

GranuleRun RunAround(const UnitCut& cut, std::uint32_t granule) {
  const DeviceId device = cut.owners[granule];
  GranuleRun run{granule, granule + 1};
  while (run.begin > 0 && cut.owners[run.begin - 1] == device) --run.begin;
  while (run.end < cut.owners.size() && cut.owners[run.end] == device) ++run.end;
  return run;
}

std::vector<GranuleRun> RunsOf(const UnitCut& cut, DeviceId device) {
  std::vector<GranuleRun> runs;
  for (std::uint32_t granule = 0; granule < cut.owners.size(); ++granule) {
    if (cut.owners[granule] != device) continue;
    if (runs.empty() || runs.back().end != granule) runs.push_back({granule, granule});
    runs.back().end = granule + 1;
  }
  return runs;
}

std::int64_t RunBytes(const TableSpec& spec, const UnitCut& cut, const GranuleRun& run) {
  return SliceBytes(spec, SliceOf(spec, cut, run, {}));
}

}  // namespace embla
