// A table's tiling as owners of units: the view that live moves change. A unit is one row granule
// of one column cut; moves never cut columns anew. A table with replica groups has group 0's tiling
// here: the other copies lie at the same positions of their groups.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/plan.h"

namespace embla {

struct UnitCut {
  std::uint32_t column_begin = 0;
  std::uint32_t column_end = 0;
  std::uint32_t column_granule = 0;  // The cut's first: its name in a UnitId.
  std::vector<DeviceId> owners;      // By row granule.
  bool operator==(const UnitCut&) const = default;
};

// By column_begin. Requires: a valid table that is not replicated.
std::vector<UnitCut> CutsOf(const TablePlan& table);

// Adjacent granules of one device are one slice.
std::vector<Slice> SlicesOf(const TableSpec& spec, const std::vector<UnitCut>& cuts);

// `table` with `tiling`, and with what that makes of the other groups' copies. Requires: the table
// has as many tilings as groups, the devices are of group 0 on nodes of `plan`.
void SetTiling(const Plan& plan, std::vector<Slice> tiling, TablePlan& table);

// Devices of `node` that may have units of `table`, group 0's: from 0. None: they cannot be divided
// into its groups.
std::uint32_t DevicesForUnits(const TableSpec& table, const NodeSpec& node);
// Returns the devices with copies of the units on `device`, itself first. Requires: one of those.
std::vector<DeviceId> CopiesOf(const TableSpec& table, const NodeSpec& node, DeviceId device);

// Granules [begin, end) of one cut with one owner.
struct GranuleRun {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint32_t size() const { return end - begin; }
};

// The run around `granule`.
GranuleRun RunAround(const UnitCut& cut, std::uint32_t granule);
// The runs of `device`, ascending.
std::vector<GranuleRun> RunsOf(const UnitCut& cut, DeviceId device);

// Weights and optimizer state of one copy of the granules of `cut`, in bytes.
std::int64_t RunBytes(const TableSpec& spec, const UnitCut& cut, const GranuleRun& run);

}  // namespace embla
