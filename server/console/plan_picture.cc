#include "server/console/plan_picture.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

namespace embla {
namespace {

void Add(const TableSpec& spec, const Slice& slice, PlacedSum& sum) {
  sum.bytes += SliceBytes(spec, slice);
  sum.rows += slice.rows();
  ++sum.slices;
}

// Lines of a raster: `count` cells of almost the same size between 0 and `end`.
struct Axis {
  std::int64_t end = 0;
  std::int64_t count = 1;

  // Products fit: 2^40 rows at most, and a few thousand cells.
  std::int64_t Begin(std::int64_t cell) const { return end * cell / count; }
  std::int64_t Centre(std::int64_t cell) const { return (Begin(cell) + Begin(cell + 1)) / 2; }
  // The first cell whose centre is at `value` or behind it.
  std::int64_t CellFrom(std::int64_t value) const {
    std::int64_t cell = value * count / end;
    while (cell > 0 && Centre(cell - 1) >= value) --cell;
    while (cell < count && Centre(cell) < value) ++cell;
    return cell;
  }
};

// The finest raster with so many cells and no more columns than the tiling has cuts.
std::pair<Axis, Axis> RasterOf(const TablePlan& table, const std::vector<Slice>& tiling,
                               std::size_t cells_max) {
  std::set<std::uint32_t> cuts;
  for (const Slice& slice : tiling) cuts.insert(slice.column_begin);
  std::int64_t columns = static_cast<std::int64_t>(cuts.size());
  const auto max = static_cast<std::int64_t>(cells_max);
  while (columns > 1 && columns * columns > max) columns /= 2;
  const std::int64_t rows = std::clamp<std::int64_t>(max / columns, 1, table.spec.rows);
  return {Axis{table.spec.rows, rows}, Axis{table.spec.dim, columns}};
}

TablePicture Raster(const TablePlan& table, const std::vector<Slice>& tiling,
                    std::size_t cells_max) {
  const std::pair<Axis, Axis> raster = RasterOf(table, tiling, cells_max);
  const Axis& rows = raster.first;
  const Axis& columns = raster.second;
  std::vector<DeviceId> cells(static_cast<std::size_t>(rows.count * columns.count));
  const auto cell = [&](std::int64_t row, std::int64_t column) -> DeviceId& {
    return cells[static_cast<std::size_t>(column * rows.count + row)];
  };
  // Slices tile the table, so each centre is in one of them.
  for (const Slice& slice : tiling) {
    const std::int64_t row_end = rows.CellFrom(slice.row_end);
    const std::int64_t column_end = columns.CellFrom(slice.column_end);
    for (std::int64_t c = columns.CellFrom(slice.column_begin); c < column_end; ++c) {
      for (std::int64_t r = rows.CellFrom(slice.row_begin); r < row_end; ++r) {
        cell(r, c) = slice.device;
      }
    }
  }
  TablePicture picture;
  picture.is_exact = false;
  for (std::int64_t c = 0; c < columns.count; ++c) {
    for (std::int64_t r = 0, next = 0; r < rows.count; r = next) {
      next = r + 1;
      while (next < rows.count && cell(next, c) == cell(r, c)) ++next;
      picture.rectangles.push_back({.row_begin = rows.Begin(r),
                                    .row_end = rows.Begin(next),
                                    .column_begin = static_cast<std::uint32_t>(columns.Begin(c)),
                                    .column_end = static_cast<std::uint32_t>(columns.Begin(c + 1)),
                                    .device = cell(r, c)});
    }
  }
  return picture;
}

}  // namespace

std::map<DeviceId, PlacedSum> SumsByDevice(const TablePlan& table) {
  std::map<DeviceId, PlacedSum> sums;
  for (const std::vector<Slice>& tiling : table.replicas) {
    for (const Slice& slice : tiling) Add(table.spec, slice, sums[slice.device]);
  }
  return sums;
}

PlanSums::PlanSums(PlanPtr plan) : plan_(std::move(plan)) {
  for (const TablePtr& table : plan_->tables().pointers()) {
    TableSum& sum = tables_.emplace_back();
    sum.table = table;
    std::set<NodeId> nodes;
    for (const auto& [device, placed] : SumsByDevice(*table)) {
      nodes.insert(device.node);
      ++sum.devices;
      sum.placed.bytes += placed.bytes;
      sum.placed.rows += placed.rows;
      sum.placed.slices += placed.slices;
      DeviceSum& on_device = devices_[device];
      ++on_device.tables;
      on_device.placed.bytes += placed.bytes;
      on_device.placed.rows += placed.rows;
      on_device.placed.slices += placed.slices;
    }
    sum.nodes = static_cast<std::uint32_t>(nodes.size());
  }
  std::ranges::sort(tables_, {}, [](const TableSum& sum) {
    return std::tuple(-sum.placed.bytes, std::string_view(sum.table->spec.name));
  });
}

const TableSum* PlanSums::Find(TableId table) const {
  const auto found =
      std::ranges::find(tables_, table, [](const TableSum& sum) { return sum.table->spec.id; });
  return found == tables_.end() ? nullptr : &*found;
}

TablePicture PictureOf(const TablePlan& table, std::size_t copy, std::size_t rectangles_max) {
  const std::vector<Slice>& tiling = table.replicas[copy];
  if (tiling.size() <= rectangles_max) return {.rectangles = tiling};
  return Raster(table, tiling, rectangles_max);
}

std::vector<TableOnDevice> TablesOn(const Plan& plan, DeviceId device) {
  std::vector<TableOnDevice> found;
  for (const TablePtr& table : plan.tables().pointers()) {
    PlacedSum placed;
    for (const std::vector<Slice>& tiling : table->replicas) {
      for (const Slice& slice : tiling) {
        if (slice.device == device) Add(table->spec, slice, placed);
      }
    }
    if (placed.slices > 0) found.push_back({table, placed});
  }
  std::ranges::sort(found, {}, [](const TableOnDevice& on) {
    return std::tuple(-on.placed.bytes, std::string_view(on.table->spec.name));
  });
  return found;
}

}  // namespace embla
