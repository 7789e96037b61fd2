// The units of a node's tables, as live moves see them: finds a unit's rows, makes room for new
// ones, and changes what is present at one place in the order of the table's devices.
//
// Planted damage (core/base/planted_damage.h): units.lose (rows that are installed are not found),
// units.keep (rows that have moved away are kept, and found).
//
// A unit's rows lie in a slice (server/table/own_slice.h) on one device; the table's lead device
// knows of all units (server/table/table_units.h). Both change in one task. With replica groups
// this holds for each copy, and one task changes all copies: units of one copy are present in all,
// at the same positions of the groups' devices.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "server/migration/record_fold.h"
#include "server/migration/unit_host.h"
#include "server/shard/node_tables.h"
#include "server/shard/work_thread.h"
#include "server/table/device_executor.h"

namespace embla {

class UnitTables final : public UnitHost {
 public:
  // Makes the node's next tables from `old`; null: they stay.
  using Change = std::function<absl::StatusOr<NodeTablesPtr>(const NodeTables& old)>;
  // Nothing is owned; everything outlives this object.
  struct Node {
    DeviceExecutors& executors;
    std::function<NodeTablesPtr()> tables;
    // Publishes what `change` makes of the tables: one change, or plan, at a time.
    std::function<absl::Status(const Change& change)> publish;
    // Told on the lead devices when steps of units may have changed what is here of a table.
    std::function<void(TableId table)> changed;
    TableMaker maker;
    BufferPool& pool;  // Memory for chunks that are read.
    RecordFold::IsOver is_over;
    const Clock& clock;
  };
  explicit UnitTables(Node node) : node_(std::move(node)) {}
  // Ends what runs on threads of its own. Called before the executors go.
  void Stop() { stores_.Stop(); }

  absl::StatusOr<UnitShape> ShapeOf(const UnitId& unit) const override;
  absl::Duration RequestDelay() const override { return node_.executors.request_delay(); }
  void RunInOrder(TableId table, std::function<void()> work) override;
  void SetGate(const UnitId& unit, std::shared_ptr<UnitGate> gate) override;
  UnitWindows WindowsOf(const UnitId& unit) const override;
  void StepFold(TableId table, PlanVersion plan) override;
  void CancelFold(TableId table) override;
  void NoteForFold(const UnitId& unit, const UnitWindows& windows, PlanVersion plan) override;
  PlanVersion MayJoin(const UnitId& unit) const override;
  void JoinRest(const UnitId& unit, const UnitWindows& windows, PlanVersion plan) override;
  bool AsksApart(TableId table) const override;
  void ReadChunk(const UnitId& unit, std::uint32_t chunk, ChunkTurn turn,
                 std::function<void(absl::StatusOr<Buffer>)> done) override;
  void Trim(const UnitId& unit, HostDone done) override;
  // On a thread of its own, as a store may take long to make.
  void Reserve(const UnitId& unit, std::uint32_t device, const RowRun& run, HostDone done) override;
  void Stage(const UnitId& unit, std::uint32_t chunk, SharedBuffer block, ChunkTurn turn,
             HostDone done) override;
  void Reset(const UnitId& unit, HostDone done) override;
  void Install(const UnitId& unit, std::shared_ptr<UnitGate> gate, HostDone done) override;
  void Discard(const UnitId& unit, HostDone done) override;
  void Relocate(const UnitId& unit, HostDone done) override;

 private:
  // Lead device of a table of which this node holds nothing yet; it stays the lead device when the
  // first slice arrives.
  static constexpr std::uint32_t kFirstLeadDevice = 0;

  struct Unit {
    UnitId id;
    UnitShape shape;
    const TablePlan* plan = nullptr;  // The table's plan in `tables`.
    NodeId owner{};                   // By the plan.
    // The copies of the table, by replica group; none: nothing of it is here.
    std::vector<std::shared_ptr<TableShard>> copies;
    std::uint32_t devices_per_group = 0;
    NodeTablesPtr tables;

    ColumnRange columns() const { return {shape.column_begin, shape.column_end}; }
    RowInterval rows() const { return {shape.row_begin, shape.row_end}; }
    std::uint32_t groups() const { return plan->spec.replica_groups; }
    std::uint32_t GroupOf(std::uint32_t device) const { return device / devices_per_group; }
    // The copy that has slices on `device`.
    TableShard& CopyOn(std::uint32_t device) const { return *copies[GroupOf(device)]; }
    TableUnits::Cut& CutOn(std::uint32_t device) const {
      return CopyOn(device).units().CutOf(columns());
    }
    bool IsLead(std::uint32_t device) const { return CopyOn(device).lead_device() == device; }
    DeviceSet leads() const;
    DeviceSet devices() const;
    // The devices, in all groups, that correspond to `device` of group 0.
    DeviceSet CopiesOf(std::uint32_t device) const;
  };
  using OnDevice = std::function<absl::Status(std::uint32_t device)>;

  // NotFound, InvalidArgument, FailedPrecondition (not movable).
  absl::StatusOr<Unit> Find(const UnitId& id) const;
  // Find(), with FailedPrecondition when nothing of the table is here.
  absl::StatusOr<Unit> FindHere(const UnitId& id) const;
  // FindHere(), with InvalidArgument when the unit has no such chunk.
  absl::StatusOr<Unit> FindChunk(const UnitId& id, std::uint32_t chunk) const;
  absl::StatusOr<Unit> FindIn(NodeTablesPtr tables, const UnitId& id) const;

  // None: nothing of the table is here.
  std::vector<std::shared_ptr<TableShard>> CopiesOf(TableId table) const;
  // Devices on which steps of the table's units run: the lead devices of its copies.
  DeviceSet LeadsOf(TableId table) const;
  // After a step of some unit of `table`, on `leads`, while they stand still.
  void AskGatesAgain(TableId table, DeviceSet leads);
  static std::shared_ptr<UnitGate> GateOfCopies(const Unit& unit, std::shared_ptr<UnitGate> gate);
  void Answer(absl::Status status, HostDone done);
  // Runs `work` on all devices of the unit's table, then tells its first error. Work that copies
  // rows can wait until the devices have nothing else to do; work that changes which requests find
  // them has its place in the order, behind the requests before it or (kNow) before those whose
  // turn has not come.
  enum class Turn : std::uint8_t { kInOrder, kNow, kWhenIdle };
  static Turn TurnOf(ChunkTurn turn) {
    return turn == ChunkTurn::kNow ? Turn::kNow : Turn::kWhenIdle;
  }
  void RunOnTable(const Unit& unit, Turn turn, OnDevice work, HostDone done);
  // Changes what is present or staged of the unit, where it lies and on the lead device.
  using ChangeRows = void (*)(RowIntervals& present, RowIntervals& staged, RowInterval rows);
  void ChangeOn(const Unit& unit, std::uint32_t device, ChangeRows change);
  // The memory of a slice that has no rows any more.
  void GiveBack(OwnSlice& own);

  absl::StatusOr<NodeTablesPtr> MakeRoom(const NodeTables& old, const UnitId& id,
                                         std::uint32_t device, const RowRun& run);
  // The groups in which the unit has no memory yet and finds none in stores that are there.
  std::vector<std::uint32_t> GroupsWithoutRoom(const Unit& unit, std::uint32_t device);
  // Runs `run` on those of CopiesOf(device) that have stores, or had them lately.
  void RunOnStored(const Unit& unit, std::uint32_t device,
                   const std::function<void(std::uint32_t copy)>& run) const;
  void NoteRoom(const Unit& unit);
  // The part of `run`, around the unit, that no store of the device has: rows that the device has
  // already stay where they are.
  RowRun WithoutStored(const Unit& unit, std::uint32_t device, RowRun run) const;
  // A slice with the run's rows on the device of each of `groups`, with room for the unit. By
  // group, null for the others.
  absl::StatusOr<std::vector<std::shared_ptr<OwnSlice>>> MakeSlices(
      const Unit& unit, std::uint32_t device, std::span<const std::uint32_t> groups,
      const RowRun& run) const;
  // The unit with copies that have the slices, too.
  Unit WithSlices(const Unit& unit, std::vector<std::shared_ptr<OwnSlice>> slices);

  const Node node_;
  WorkThread stores_;
};

}  // namespace embla
