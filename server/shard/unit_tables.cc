#include "server/shard/unit_tables.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/failpoint.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/shard/unit_relocation.h"
#include "server/table/unit_io.h"

namespace embla {
namespace {

// Where a table's steps run until the node has something of it, and that leads it then.
constexpr std::uint32_t kFirstLeadDevice = 0;

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
  if (!plan.replicated() && !plan.grouped()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("units of table ", plan.spec.name, " cannot move: it is ",
                   plan.grouped() ? "trained in replica groups" : "replicated (data_parallel)"));
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
  unit.shape = ShapeOfUnit(spec, id.row_granule, {slice->column_begin, slice->column_end});
  const auto it = unit.tables->tables.find(ToInt(id.table));
  if (it != unit.tables->tables.end()) unit.shard = it->second.shard();
  return unit;
}

absl::StatusOr<UnitTables::Unit> UnitTables::Find(const UnitId& id) const {
  return FindIn(node_.tables(), id);
}

absl::StatusOr<UnitTables::Unit> UnitTables::FindHere(const UnitId& id) const {
  EMBLA_ASSIGN_OR_RETURN(Unit unit, Find(id));
  if (unit.shard == nullptr) return NotHere(*unit.plan, id, " is not on this node");
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

void UnitTables::RunInOrder(TableId table, std::function<void()> work) {
  const NodeTablesPtr tables = node_.tables();
  const auto it = tables->tables.find(ToInt(table));
  const std::uint32_t lead =
      it == tables->tables.end() ? kFirstLeadDevice : it->second.shard()->lead_device();
  const auto run = [this, table, work = std::move(work)](std::uint32_t device) {
    work();
    AskGatesAgain(table, device);
  };
  node_.executors.SubmitControl(std::make_unique<FunctionTask>(run, [] {}), DeviceSet::Of(lead));
}

void UnitTables::AskGatesAgain(TableId table, std::uint32_t device) {
  const NodeTablesPtr tables = node_.tables();
  const auto it = tables->tables.find(ToInt(table));
  if (it == tables->tables.end() || it->second.shard()->lead_device() != device) return;
  it->second.shard()->units().GatesMayHaveChanged();
}

void UnitTables::SetGate(const UnitId& unit, std::shared_ptr<UnitGate> gate) {
  const absl::StatusOr<Unit> found = FindHere(unit);
  if (!found.ok()) return;  // Nobody asks gates of a table that is not here.
  found->shard->units().SetGate(unit.row_granule, found->shape, std::move(gate));
}

UnitWindows UnitTables::WindowsOf(const UnitId& unit) const {
  const absl::StatusOr<Unit> found = FindHere(unit);
  return found.ok() ? found->shard->replay_windows().Export() : UnitWindows();
}

void UnitTables::Answer(const absl::Status& status, HostDone done) {
  node_.executors.SubmitControl(
      std::make_unique<FunctionTask>([](std::uint32_t) {},
                                     [status, done = std::move(done)] { done(status); }),
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
  if (turn == Turn::kInOrder) {
    node_.executors.SubmitControl(std::move(task), unit.shard->devices());
  } else {
    node_.executors.SubmitBackground(std::move(task), unit.shard->devices());
  }
}

void UnitTables::ChangeOn(const Unit& unit, std::uint32_t device, ChangeRows change) {
  TableShard& shard = *unit.shard;
  if (device == shard.lead_device()) change(unit.cut().present, unit.cut().staged, unit.rows());
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

void UnitTables::ReadChunk(const UnitId& unit, std::uint32_t chunk,
                           std::function<void(absl::StatusOr<Buffer>)> done) {
  const absl::StatusOr<Unit> found = FindChunk(unit, chunk);
  if (!found.ok()) {
    return Answer(found.status(), [done](const absl::Status& status) { done(status); });
  }
  // Written by the one device that has the rows.
  auto rows =
      std::make_shared<absl::StatusOr<Buffer>>(NotHere(*found->plan, unit, " is not on this node"));
  RunOnTable(
      *found, Turn::kWhenIdle,
      [this, found = *found, chunk, rows](std::uint32_t device) {
        for (const OwnSlice& own : found.shard->slices(device)) {
          if (!own.Covers(found.columns(), found.rows()) ||
              !own.present.ContainsAll(found.rows())) {
            continue;
          }
          *rows = EncodeChunk(*found.shard, own, found.shape, chunk, &node_.pool);
        }
        return absl::OkStatus();
      },
      [rows, done = std::move(done)](const absl::Status&) { done(std::move(*rows)); });
}

void UnitTables::Trim(const UnitId& unit, HostDone done) {
  const absl::StatusOr<Unit> found = FindHere(unit);
  if (!Failpoint("units.keep").ok()) return Answer(absl::OkStatus(), std::move(done));
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
  RelocateUnit(node_.executors, found->shard, found->shape, std::move(done));
}

void UnitTables::Install(const UnitId& unit, std::shared_ptr<UnitGate> gate, HostDone done) {
  const absl::StatusOr<Unit> found = FindHere(unit);
  if (!found.ok()) return Answer(found.status(), std::move(done));
  const bool is_lost = !Failpoint("units.lose").ok();
  RunOnTable(
      *found, Turn::kInOrder,
      [this, found = *found, gate = std::move(gate), is_lost](std::uint32_t device) {
        ChangeOn(found, device, [](RowIntervals& present, RowIntervals& staged, RowInterval rows) {
          if (!staged.ContainsAll(rows)) return;
          staged.Erase(rows);
          present.Insert(rows);
        });
        if (is_lost) LosePresent(*found.shard, device, found.rows());
        if (device != found.shard->lead_device()) return absl::OkStatus();
        if (!found.cut().present.ContainsAll(found.rows())) {
          return NotHere(*found.plan, found.id, " cannot be installed: nothing was reserved");
        }
        found.shard->units().SetGate(found.id.row_granule, found.shape, gate);
        return absl::OkStatus();
      },
      std::move(done));
}

void UnitTables::Stage(const UnitId& unit, std::uint32_t chunk, SharedBuffer block, HostDone done) {
  const absl::StatusOr<Unit> found = FindChunk(unit, chunk);
  if (!found.ok()) return Answer(found.status(), std::move(done));
  const absl::StatusOr<UnitChunk> rows =
      DecodeChunk(block.bytes(), *found->shard, found->shape, chunk);
  if (!rows.ok()) return Answer(rows.status(), std::move(done));
  RunOnTable(
      *found, Turn::kWhenIdle,
      [found = *found, rows = *rows,
       memory = std::move(block)](std::uint32_t device) -> absl::Status {
        if (device == found.shard->lead_device() && !found.cut().staged.ContainsAll(found.rows())) {
          return NotHere(*found.plan, found.id, " cannot be staged: nothing is reserved");
        }
        for (OwnSlice& own : found.shard->slices(device)) {
          if (!own.Covers(found.columns(), found.rows()) || !own.staged.ContainsAll(found.rows())) {
            continue;
          }
          EMBLA_RETURN_IF_ERROR(WriteChunk(*found.shard, own, found.shape, rows));
        }
        return absl::OkStatus();
      },
      std::move(done));
}

void UnitTables::Reserve(const UnitId& unit, std::uint32_t device, const RowRun& run,
                         HostDone done) {
  const bool accepted = stores_.Post([this, unit, device, run, done] {
    const absl::Status status =
        node_.publish([&](const NodeTables& old) { return MakeRoom(old, unit, device, run); });
    Answer(status, done);
  });
  if (!accepted) Answer(absl::UnavailableError("the node stops"), std::move(done));
}

absl::StatusOr<NodeTablesPtr> UnitTables::MakeRoom(const NodeTables& old, const UnitId& id,
                                                   std::uint32_t device, const RowRun& run) {
  EMBLA_ASSIGN_OR_RETURN(Unit unit, FindIn(std::make_shared<const NodeTables>(old), id));
  if (device >= node_.executors.devices()) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", device, " of a node that has ", node_.executors.devices()));
  }
  const RowRun rows{std::min(run.row_begin, unit.shape.row_begin),
                    std::max(run.row_end, unit.shape.row_end)};
  if (rows.row_begin < 0 || rows.row_end > unit.plan->spec.rows) {
    return absl::InvalidArgumentError(absl::StrCat("rows [", rows.row_begin, ", ", rows.row_end,
                                                   ") of table ", unit.plan->spec.name,
                                                   ", which has ", unit.plan->spec.rows));
  }
  if (unit.shard != nullptr && FindRoom(unit, device)) return NodeTablesPtr();
  auto next = std::make_shared<NodeTables>(old);
  NodeTable& table = next->tables[ToInt(id.table)];
  EMBLA_ASSIGN_OR_RETURN(std::shared_ptr<TableShard> shard, AddSlice(unit, device, rows));
  table.spec = unit.plan->spec;
  table.shards = {std::move(shard)};
  return NodeTablesPtr(std::move(next));
}

// The lead device knows of rooms for units that come to the node.
void UnitTables::NoteRoom(const Unit& unit) {
  RunOnDevices(node_.executors, DeviceSet::Of(unit.shard->lead_device()), [&](std::uint32_t) {
    if (!unit.cut().present.ContainsAll(unit.rows())) unit.cut().staged.Insert(unit.rows());
  });
}

bool UnitTables::FindRoom(const Unit& unit, std::uint32_t device) {
  bool has_room = false;
  RunOnDevices(node_.executors, DeviceSet::Of(unit.shard->lead_device()),
               [&](std::uint32_t) { has_room = unit.cut().staged.ContainsAll(unit.rows()); });
  if (has_room || !unit.shard->devices().Has(device)) return has_room;
  RunOnDevices(node_.executors, DeviceSet::Of(device), [&](std::uint32_t) {
    const auto covers = [&](const OwnSlice& own) {
      return own.store != nullptr && own.Covers(unit.columns(), unit.rows());
    };
    for (const OwnSlice& own : unit.shard->slices(device)) {
      has_room = has_room || (covers(own) && (own.present.Intersects(unit.rows()) ||
                                              own.staged.Intersects(unit.rows())));
    }
    for (OwnSlice& own : unit.shard->slices(device)) {
      if (has_room || !covers(own)) continue;
      own.staged.Insert(unit.rows());
      has_room = true;
    }
  });
  if (has_room) NoteRoom(unit);
  return has_room;
}

absl::StatusOr<std::shared_ptr<TableShard>> UnitTables::AddSlice(const Unit& unit,
                                                                 std::uint32_t device,
                                                                 const RowRun& run) {
  const TableSpec& spec = unit.plan->spec;
  const PlanVersion version = unit.tables->plan->version();
  Slice slice;
  slice.row_begin = run.row_begin;
  slice.row_end = run.row_end;
  slice.column_begin = unit.shape.column_begin;
  slice.column_end = unit.shape.column_end;
  slice.device = {unit.tables->self, device};
  absl::StatusOr<SliceMemory> memory = node_.maker.make_unset_memory(spec, slice);
  if (!memory.ok()) return Annotate(memory.status(), absl::StrCat("device ", device));
  auto own = std::make_shared<OwnSlice>(spec, slice, *std::move(memory), node_.maker.metrics);
  own->staged.Insert(unit.rows());
  Unit next = unit;
  if (unit.shard == nullptr) {
    next.shard =
        TableShard::CreateAround(spec, version, kFirstLeadDevice, own, node_.maker.metrics);
  } else {
    next.shard = unit.shard->With(own, spec, version);
  }
  NoteRoom(next);
  RunOnDevices(node_.executors, DeviceSet::Of(device),
               [&](std::uint32_t) { next.shard->CountStorage(device); });
  return next.shard;
}

}  // namespace embla
