#include "server/shard/unit_inventory.h"

#include <utility>

#include "server/table/unit_shape.h"

namespace embla {
namespace {

// The first replica group stands for all: the others lie alike.
class TableInventory {
 public:
  TableInventory(const NodeTable& table, DeviceExecutors& executors)
      : table_(table), shard_(*table.shard()), executors_(executors) {}

  void Append(std::vector<UnitStandings>* units) {
    std::vector<std::vector<UnitStandings>> by_device(executors_.devices());
    RunOnDevices(executors_, shard_.devices(), [&](std::uint32_t device) {
      for (const OwnSlice& own : shard_.slices(device)) {
        for (const RowInterval& rows : own.present.intervals()) {
          AppendPresent(device, own, rows, &by_device[device]);
        }
      }
    });
    RunOnDevices(executors_, DeviceSet::Of(shard_.lead_device()), [&](std::uint32_t) {
      for (const std::vector<UnitStandings>& present : by_device) {
        for (const UnitStandings& unit : present) AppendOwned(unit, units);
      }
    });
  }

 private:
  void AppendPresent(std::uint32_t device, const OwnSlice& own, RowInterval rows,
                     std::vector<UnitStandings>* units) const {
    const TableSpec& spec = table_.spec;
    for (std::uint32_t granule = RowGranuleOf(spec, rows.begin);
         granule < spec.row_granules && spec.RowGranuleBegin(granule) < rows.end; ++granule) {
      units->push_back({.table = spec.id,
                        .column_granule = own.slice.column_begin / spec.column_granule_width,
                        .granule_begin = granule,
                        .granule_end = granule + 1,
                        .standing = {},
                        .device = device});
    }
  }

  // A unit without a gate was made here and never moved.
  void AppendOwned(UnitStandings unit, std::vector<UnitStandings>* units) const {
    unit.standing = {.state = UnitStanding::State::kOwned, .epoch = UnitEpoch{1}};
    const std::uint32_t column = table_.spec.ColumnGranuleBegin(unit.column_granule);
    for (const TableUnits::Cut& cut : shard_.units().cuts()) {
      if (cut.columns.begin != column) continue;
      const std::uint32_t gate = cut.KnownGateOf(unit.granule_begin);
      if (gate != TableUnits::Cut::kNoGate) unit.standing = cut.gates[gate].gate->Standing();
    }
    if (unit.standing.state == UnitStanding::State::kOwned) AppendUnit(unit, units);
  }

  const NodeTable& table_;
  TableShard& shard_;
  DeviceExecutors& executors_;
};

}  // namespace

void AppendUnit(const UnitStandings& unit, std::vector<UnitStandings>* units) {
  if (!units->empty()) {
    UnitStandings& last = units->back();
    if (last.table == unit.table && last.column_granule == unit.column_granule &&
        last.granule_end == unit.granule_begin && last.standing == unit.standing &&
        last.device == unit.device) {
      last.granule_end = unit.granule_end;
      return;
    }
  }
  units->push_back(unit);
}

std::vector<UnitStandings> OwnedUnits(const NodeTables& tables, DeviceExecutors& executors) {
  std::vector<UnitStandings> units;
  for (const auto& [id, shared] : tables.tables) {
    const NodeTable& table = *shared;
    if (table.copy == nullptr && !table.shards.empty()) {
      TableInventory(table, executors).Append(&units);
    }
  }
  return units;
}

}  // namespace embla
