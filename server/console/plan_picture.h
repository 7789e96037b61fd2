// The console's picture of a plan: sums by table and by device, and tables as rectangles. Made from
// a plan that does not change, so the coordinator's thread has no part in it.
//
// A plan may have a million slices. Sums are made once per plan, and a picture has at most so many
// rectangles: of a table with more slices it shows a raster, where a cell has the device of its
// centre.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/plan.h"

namespace embla {

// A table's slices on one device, or all slices there.
struct PlacedSum {
  std::int64_t bytes = 0;  // Weights, optimizer state and, of a ZCH table, what is known of ids.
  std::int64_t rows = 0;   // A row once per column slice.
  std::uint64_t slices = 0;
};

struct TableSum {
  TablePtr table;
  PlacedSum placed;  // All copies.
  std::uint32_t devices = 0;
  std::uint32_t nodes = 0;
};

struct DeviceSum {
  PlacedSum placed;
  std::uint32_t tables = 0;
};

// Thread safety: immutable.
class PlanSums {
 public:
  explicit PlanSums(PlanPtr plan);

  const PlanPtr& plan() const { return plan_; }
  const std::vector<TableSum>& tables() const { return tables_; }  // The largest first.
  const std::map<DeviceId, DeviceSum>& devices() const { return devices_; }
  // Null: no such table.
  const TableSum* Find(TableId table) const;

 private:
  PlanPtr plan_;
  std::vector<TableSum> tables_;
  std::map<DeviceId, DeviceSum> devices_;
};

struct TablePicture {
  std::vector<Slice> rectangles = {};  // They tile the table; by (column_begin, row_begin).
  bool is_exact = true;                // Each is a slice; else they are cells of a raster, joined.
};

// `copy` < table.replicas.size(). At most `rectangles_max` rectangles, which is at least 1.
TablePicture PictureOf(const TablePlan& table, std::size_t copy, std::size_t rectangles_max);

// By device, all copies.
std::map<DeviceId, PlacedSum> SumsByDevice(const TablePlan& table);

struct TableOnDevice {
  TablePtr table;
  PlacedSum placed;
};
// The tables with slices on `device`, the largest first.
std::vector<TableOnDevice> TablesOn(const Plan& plan, DeviceId device);

}  // namespace embla
