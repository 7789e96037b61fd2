#include "server/shard/unit_tables.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/planted_damage.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/replica_groups.h"
#include "server/shard/group_gate.h"
#include "server/shard/meeting_task.h"
#include "server/shard/unit_relocation.h"
#include "server/table/unit_io.h"

namespace embla {
namespace {

class FunctionTask final : public DeviceTask {
 public:
  FunctionTask(std::function<void(std::uint32_t)> run, std::function<void()> finish)
      : run_(std::move(run)), finish_(std::move(finish)) {}

  void Run(std::uint32_t device) override { run_(device); }
  void Finish() override { finish_(); }

 private:
  const std::function<void(std::uint32_t)> run_;
  const std::function<void()> finish_;
};

// The slice of the tiling that begins with the unit's columns and has its first row.
const Slice* SliceOf(const TablePlan& plan, std::int64_t row, std::uint32_t column) {
  const auto it =
      std::find_if(plan.primary().begin(), plan.primary().end(), [&](const Slice& slice) {
        return slice.column_begin == column && slice.row_begin <= row && row < slice.row_end;
      });
  return it == plan.primary().end() ? nullptr : &*it;
}

absl::Status CheckMovable(const TablePlan& plan) {
  const bool has_copies = plan.replicated() || TraitsOf(plan.sharding).has_copies;
  if (!has_copies) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "units of table ", plan.spec.name, " cannot move: it is replicated (data_parallel)"));
}

absl::StatusOr<Buffer> Joined(std::vector<absl::StatusOr<Buffer>> copies) {
  std::vector<Buffer> blocks;
  for (absl::StatusOr<Buffer>& copy : copies) {
    EMBLA_ASSIGN_OR_RETURN(blocks.emplace_back(), std::move(copy));
  }
  return JoinCopies(std::move(blocks));
}

absl::StatusOr<std::vector<UnitChunk>> DecodeCopies(std::span<const std::byte> bytes,
                                                    const TableShard& table, std::uint32_t groups,
                                                    const UnitShape& shape, std::uint32_t chunk) {
  EMBLA_ASSIGN_OR_RETURN(const auto parts, SplitCopies(bytes, groups));
  std::vector<UnitChunk> copies;
  for (const std::span<const std::byte> part : parts) {
    EMBLA_ASSIGN_OR_RETURN(copies.emplace_back(), DecodeChunk(part, table, shape, chunk));
  }
  return copies;
}

void LosePresent(TableShard& shard, std::uint32_t device, RowInterval rows) {
  for (OwnSlice& own : shard.slices(device)) own.present.Erase(rows);
}

absl::Status NotHere(const TablePlan& plan, const UnitId& id, const char* what) {
  return absl::FailedPreconditionError(absl::StrCat("table ", plan.spec.name, " row granule ",
                                                    id.row_granule, " column granule ",
                                                    id.column_granule, what));
}

}  // namespace

DeviceSet UnitTables::Unit::leads() const {
  DeviceSet all;
  for (const auto& copy : copies) all |= DeviceSet::Of(copy->lead_device());
  return all;
}

DeviceSet UnitTables::Unit::devices() const {
  DeviceSet all;
  for (const auto& copy : copies) all |= copy->devices();
  return all;
}

DeviceSet UnitTables::Unit::CopiesOf(std::uint32_t device) const {
  DeviceSet all;
  for (std::uint32_t group = 0; group < groups(); ++group) {
    all |= DeviceSet::Of(DeviceOfGroup(device, group, devices_per_group));
  }
  return all;
}

absl::StatusOr<UnitTables::Unit> UnitTables::FindIn(NodeTablesPtr tables, const UnitId& id) const {
  Unit unit;
  unit.id = id;
  unit.tables = std::move(tables);
  unit.plan = unit.tables->plan->FindTable(id.table);
  if (unit.plan == nullptr) {
    return absl::NotFoundError(absl::StrCat("there is no table with id ", ToInt(id.table),
                                            " in plan ", ToInt(unit.tables->plan->version())));
  }
  EMBLA_RETURN_IF_ERROR(CheckMovable(*unit.plan));
  const TableSpec& spec = unit.plan->spec;
  EMBLA_ASSIGN_OR_RETURN(
      unit.devices_per_group,
      DevicesPerGroup("of this process", node_.executors.devices(), spec.replica_groups));
  const Slice* slice = nullptr;
  if (id.row_granule < spec.row_granules && id.column_granule < spec.column_granules()) {
    slice = SliceOf(*unit.plan, spec.RowGranuleBegin(id.row_granule),
                    spec.ColumnGranuleBegin(id.column_granule));
  }
  if (slice == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", spec.name, " has no unit of row granule ", id.row_granule,
                     " whose columns begin with column granule ", id.column_granule));
  }
  unit.owner = slice->device.node;
  unit.shape = ShapeOfUnit(spec, id.row_granule, {slice->column_begin, slice->column_end});
  const auto it = unit.tables->tables.find(ToInt(id.table));
  if (it != unit.tables->tables.end()) unit.copies = it->second->shards;
  return unit;
}

absl::StatusOr<UnitTables::Unit> UnitTables::Find(const UnitId& id) const {
  return FindIn(node_.tables(), id);
}

absl::StatusOr<UnitTables::Unit> UnitTables::FindHere(const UnitId& id) const {
  EMBLA_ASSIGN_OR_RETURN(Unit unit, Find(id));
  if (unit.copies.empty()) return NotHere(*unit.plan, id, " is not on this node");
  return unit;
}

absl::StatusOr<UnitTables::Unit> UnitTables::FindChunk(const UnitId& id,
                                                       std::uint32_t chunk) const {
  EMBLA_ASSIGN_OR_RETURN(Unit unit, FindHere(id));
  if (chunk < unit.shape.chunks()) return unit;
  return absl::InvalidArgumentError(
      absl::StrCat("chunk ", chunk, " of a unit that has ", unit.shape.chunks()));
}

absl::StatusOr<UnitShape> UnitTables::ShapeOf(const UnitId& unit) const {
  EMBLA_ASSIGN_OR_RETURN(const Unit found, Find(unit));
  return found.shape;
}

std::vector<std::shared_ptr<TableShard>> UnitTables::CopiesOf(TableId id) const {
  const NodeTablesPtr tables = node_.tables();
  const auto it = tables->tables.find(ToInt(id));
  return it == tables->tables.end() ? std::vector<std::shared_ptr<TableShard>>()
                                    : it->second->shards;
}

DeviceSet UnitTables::LeadsOf(TableId id) const {
  const NodeTablesPtr tables = node_.tables();
  DeviceSet leads;
  if (const auto it = tables->tables.find(ToInt(id)); it != tables->tables.end()) {
    for (const auto& copy : it->second->shards) leads |= DeviceSet::Of(copy->lead_device());
    return leads;
  }
  const TablePlan* const plan = tables->plan->FindTable(id);
  const std::uint32_t groups = plan == nullptr ? 1 : plan->spec.replica_groups;
  const std::uint32_t per_group = node_.executors.devices() / groups;
  for (std::uint32_t group = 0; group < groups; ++group) {
    leads |= DeviceSet::Of(DeviceOfGroup(kFirstLeadDevice, group, per_group));
  }
  return leads;
}

void UnitTables::RunInOrder(TableId table, std::function<void()> work) {
  const DeviceSet leads = LeadsOf(table);
  auto run = [this, table, leads, work = std::move(work)] {
    work();
    AskGatesAgain(table, leads);
  };
  node_.executors.SubmitControl(std::make_unique<MeetingTask>(leads, std::move(run)), leads);
}

void UnitTables::AskGatesAgain(TableId table, DeviceSet leads) {
  const NodeTablesPtr tables = node_.tables();
  const auto it = tables->tables.find(ToInt(table));
  if (it == tables->tables.end()) return;
  for (const std::shared_ptr<TableShard>& copy : it->second->shards) {
    if (leads.Has(copy->lead_device())) copy->units().GatesMayHaveChanged();
  }
  node_.changed(table);
}

std::shared_ptr<UnitGate> UnitTables::GateOfCopies(const Unit& unit,
                                                   std::shared_ptr<UnitGate> gate) {
  if (unit.copies.size() == 1 || gate == nullptr) return gate;
  return std::make_shared<GroupGate>(std::move(gate));
}

void UnitTables::SetGate(const UnitId& unit, std::shared_ptr<UnitGate> gate) {
  const absl::StatusOr<Unit> found = FindHere(unit);
  if (!found.ok()) return;  // A table that is not on this node has no gates.
  gate = GateOfCopies(*found, std::move(gate));
  for (const std::shared_ptr<TableShard>& copy : found->copies) {
    copy->units().SetGate(unit.row_granule, found->shape, gate);
  }
}

UnitWindows UnitTables::WindowsOf(const UnitId& unit) const {
  const absl::StatusOr<Unit> found = FindHere(unit);
  UnitWindows windows;
  if (!found.ok()) return windows;
  for (const std::shared_ptr<TableShard>& copy : found->copies) {
    windows.Include(copy->rest());
  }
  return windows;
}

void UnitTables::Answer(absl::Status status, HostDone done) {
  auto answer = [status = std::move(status), done = std::move(done)]() mutable {
    done(std::move(status));
  };
  node_.executors.SubmitControl(
      std::make_unique<FunctionTask>([](std::uint32_t) {}, std::move(answer)),
      DeviceSet::Of(kFirstLeadDevice));
}

void UnitTables::RunOnTable(const Unit& unit, Turn turn, OnDevice work, HostDone done) {
  auto errors = std::make_shared<std::vector<absl::Status>>(node_.executors.devices());
  auto task = std::make_unique<FunctionTask>(
      [errors, work = std::move(work)](std::uint32_t device) {
        (*errors)[device] = work(device);  // Each device its own.
      },
      [errors, done = std::move(done)] {
        absl::Status first;
        for (const absl::Status& error : *errors) first.Update(error);
        done(first);
      });
  switch (turn) {
    case Turn::kInOrder:
      return node_.executors.SubmitControl(std::move(task), unit.devices());
    case Turn::kNow:
      return node_.executors.SubmitRead(std::move(task), unit.devices());
    case Turn::kWhenIdle:
      return node_.executors.SubmitBackground(std::move(task), unit.devices());
  }
}

void UnitTables::ChangeOn(const Unit& unit, std::uint32_t device, ChangeRows change) {
  TableShard& shard = unit.CopyOn(device);
  if (unit.IsLead(device)) {
    TableUnits::Cut& cut = unit.CutOn(device);
    change(cut.present, cut.staged, unit.rows());
  }
  for (OwnSlice& own : shard.slices(device)) {
    if (own.store == nullptr || !own.Covers(unit.columns(), unit.rows())) continue;
    change(own.present, own.staged, unit.rows());
    MatchBucket(own, unit.rows());
    if (own.present.empty() && own.staged.empty()) GiveBack(own);
  }
  shard.CountStorage(device);
}

// To unmap a large store takes long: not on the device's thread.
void UnitTables::GiveBack(OwnSlice& own) {
  auto store = std::make_shared<std::unique_ptr<RowStore>>(std::move(own.store));
  stores_.Post([store] { store->reset(); });
  own.ReleaseIfEmpty();
}

void UnitTables::ReadChunk(const UnitId& unit, std::uint32_t chunk, ChunkTurn turn,
                           std::function<void(absl::StatusOr<Buffer>)> done) {
  const absl::StatusOr<Unit> found = FindChunk(unit, chunk);
  if (!found.ok()) {
    return Answer(found.status(), [done](const absl::Status& status) { done(status); });
  }
  // One entry per copy, written by the one device that has its rows.
  auto copies = std::make_shared<std::vector<absl::StatusOr<Buffer>>>();
  for (std::uint32_t group = 0; group < found->groups(); ++group) {
    copies->emplace_back(NotHere(*found->plan, unit, " is not on this node"));
  }
  RunOnTable(
      *found, TurnOf(turn),
      [this, found = *found, chunk, copies](std::uint32_t device) {
        TableShard& shard = found.CopyOn(device);
        for (const OwnSlice& own : shard.slices(device)) {
          if (!own.Covers(found.columns(), found.rows()) ||
              !own.present.ContainsAll(found.rows())) {
            continue;
          }
          (*copies)[found.GroupOf(device)] =
              EncodeChunk(shard, own, found.shape, chunk, &node_.pool);
        }
        return absl::OkStatus();
      },
      [copies, done = std::move(done)](const absl::Status&) { done(Joined(std::move(*copies))); });
}

void UnitTables::Trim(const UnitId& unit, HostDone done) {
  const absl::StatusOr<Unit> found = FindHere(unit);
  if (PlantedDamage("units.keep")) return Answer(absl::OkStatus(), std::move(done));
  if (!found.ok()) return Answer(found.status(), std::move(done));
  RunOnTable(
      *found, Turn::kInOrder,
      [this, found = *found](std::uint32_t device) {
        ChangeOn(found, device, [](RowIntervals& present, RowIntervals&, RowInterval rows) {
          present.Erase(rows);
        });
        return absl::OkStatus();
      },
      std::move(done));
}

void UnitTables::Discard(const UnitId& unit, HostDone done) {
  const absl::StatusOr<Unit> found = FindHere(unit);
  if (!found.ok()) return Answer(found.status(), std::move(done));
  RunOnTable(
      *found, Turn::kInOrder,
      [this, found = *found](std::uint32_t device) {
        ChangeOn(found, device,
                 [](RowIntervals&, RowIntervals& staged, RowInterval rows) { staged.Erase(rows); });
        return absl::OkStatus();
      },
      std::move(done));
}

void UnitTables::Relocate(const UnitId& unit, HostDone done) {
  const absl::StatusOr<Unit> found = FindHere(unit);
  if (!found.ok()) return Answer(found.status(), std::move(done));
  RelocateUnit(node_.executors, found->copies, found->shape, std::move(done));
}

void UnitTables::Reset(const UnitId& unit, HostDone done) {
  const absl::StatusOr<Unit> found = FindHere(unit);
  if (!found.ok()) return Answer(found.status(), std::move(done));
  RunOnTable(
      *found, Turn::kWhenIdle,
      [found = *found](std::uint32_t device) -> absl::Status {
        for (OwnSlice& own : found.CopyOn(device).slices(device)) {
          if (!own.Covers(found.columns(), found.rows()) || !own.staged.ContainsAll(found.rows())) {
            continue;
          }
          const RowInterval rows = found.rows();
          EMBLA_RETURN_IF_ERROR(
              own.store->ResetRows(static_cast<std::uint32_t>(rows.begin - own.slice.row_begin),
                                   static_cast<std::uint32_t>(rows.end - rows.begin)));
        }
        return absl::OkStatus();
      },
      std::move(done));
}

void UnitTables::Install(const UnitId& unit, std::shared_ptr<UnitGate> gate, HostDone done) {
  const absl::StatusOr<Unit> found = FindHere(unit);
  if (!found.ok()) return Answer(found.status(), std::move(done));
  const bool is_lost = PlantedDamage("units.lose");
  RunOnTable(
      *found, Turn::kInOrder,
      [this, found = *found, gate = GateOfCopies(*found, std::move(gate)),
       is_lost](std::uint32_t device) {
        ChangeOn(found, device, [](RowIntervals& present, RowIntervals& staged, RowInterval rows) {
          if (!staged.ContainsAll(rows)) return;
          staged.Erase(rows);
          present.Insert(rows);
        });
        if (is_lost) LosePresent(found.CopyOn(device), device, found.rows());
        if (!found.IsLead(device)) return absl::OkStatus();
        if (!found.CutOn(device).present.ContainsAll(found.rows())) {
          return NotHere(*found.plan, found.id, " cannot be installed: nothing was reserved");
        }
        found.CopyOn(device).units().SetGate(found.id.row_granule, found.shape, gate);
        return absl::OkStatus();
      },
      std::move(done));
}

void UnitTables::Stage(const UnitId& unit, std::uint32_t chunk, SharedBuffer block, ChunkTurn turn,
                       HostDone done) {
  const absl::StatusOr<Unit> found = FindChunk(unit, chunk);
  if (!found.ok()) return Answer(found.status(), std::move(done));
  const absl::StatusOr<std::vector<UnitChunk>> rows =
      DecodeCopies(block.bytes(), *found->copies.front(), found->groups(), found->shape, chunk);
  if (!rows.ok()) return Answer(rows.status(), std::move(done));
  RunOnTable(
      *found, TurnOf(turn),
      [found = *found, rows = *rows,
       memory = std::move(block)](std::uint32_t device) -> absl::Status {
        if (found.IsLead(device) && !found.CutOn(device).staged.ContainsAll(found.rows())) {
          return NotHere(*found.plan, found.id, " cannot be staged: nothing is reserved");
        }
        TableShard& shard = found.CopyOn(device);
        for (OwnSlice& own : shard.slices(device)) {
          if (!own.Covers(found.columns(), found.rows()) || !own.staged.ContainsAll(found.rows())) {
            continue;
          }
          EMBLA_RETURN_IF_ERROR(WriteChunk(shard, own, found.shape, rows[found.GroupOf(device)]));
        }
        return absl::OkStatus();
      },
      std::move(done));
}

}  // namespace embla
