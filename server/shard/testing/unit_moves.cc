#include "server/shard/testing/unit_moves.h"

#include <set>
#include <utility>

#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace embla::testing {

TablePlan TableOfFourUnits(std::int64_t rows, std::uint32_t dim, DeviceId device) {
  TablePlan table;
  table.spec.id = TableId{7};
  table.spec.name = std::string("t");
  table.spec.rows = rows;
  table.spec.dim = dim;
  table.spec.row_granules = 4;
  table.spec.optimizer.kind = OptimizerKind::kSgd;
  table.spec.optimizer.learning_rate = 1.0f;
  table.spec.init = {InitKind::kConstant, 0.0f, 0.0f};
  table.spec.SetDefaults();
  table.replicas = {{{0, rows, 0, dim, device}}};
  return table;
}

PartAnswer ScriptedGate::Check(const UnitUpdate& update) const {
  PartAnswer answer = CheckLookup();
  if (moved_) return answer;
  switch (windows_.Classify(update.session, update.seq, update.first_incomplete)) {
    case UnitWindows::Verdict::kApplied:
      answer.status = PartStatus::kDuplicate;
      break;
    case UnitWindows::Verdict::kTooNew:
      answer.status = PartStatus::kSeqTooNew;
      break;
    case UnitWindows::Verdict::kNew:
      answer.status = frozen_ ? PartStatus::kFrozen : PartStatus::kApplied;
      break;
  }
  return answer;
}

PartAnswer ScriptedGate::CheckLookup() const {
  return {.status = moved_ ? PartStatus::kMoved : PartStatus::kApplied,
          .owner = owner_,
          .epoch = epoch_};
}

void ScriptedGate::Apply(const UnitUpdate& update) {
  EMBLA_CHECK(!frozen_ && !moved_);
  windows_.Record(update.session, update.seq, update.first_incomplete);
}

absl::Status AwaitStatus(const std::function<void(HostDone)>& start) {
  return Await<bool>([&](const std::function<void(absl::StatusOr<bool>)>& done) {
           start([done](const absl::Status& status) { status.ok() ? done(true) : done(status); });
         })
      .status();
}

void RunInOrder(UnitHost& host, TableId table, const std::function<void()>& work) {
  EMBLA_CHECK(AwaitStatus([&](const HostDone& done) {
                host.RunInOrder(table, [&work, done] {
                  work();
                  done(absl::OkStatus());
                });
              }).ok());
}

UnitMoves::UnitMoves(LocalCluster& cluster, TablePlan table)
    : cluster_(cluster), table_(std::move(table)) {
  const TableSpec& spec = table_.spec;
  MutexLock lock(mu_);
  for (const Slice& slice : table_.primary()) {
    for (std::uint32_t granule = 0; granule < spec.row_granules; ++granule) {
      const std::int64_t row = spec.RowGranuleBegin(granule);
      if (row < slice.row_begin || row >= slice.row_end) continue;
      units_.push_back({spec.id, granule, slice.column_begin / spec.column_granule_width});
      owners_.push_back(slice.device.node);
      const absl::StatusOr<UnitShape> shape = cluster_.node(0).units().ShapeOf(units_.back());
      EMBLA_CHECK(shape.ok());
      shapes_.push_back(*shape);
    }
  }
}

std::vector<NodeId> UnitMoves::Owners() const {
  MutexLock lock(mu_);
  return owners_;
}

ScriptedGate& UnitMoves::StartMove(std::size_t unit, NodeId source) {
  std::shared_ptr<ScriptedGate>& gate = gates_[{source, units_[unit]}];
  if (gate == nullptr) {
    RunInOrder(HostOf(source), table_.spec.id, [&] {
      gate = std::make_shared<ScriptedGate>(HostOf(source).WindowsOf(units_[unit]));
      HostOf(source).SetGate(units_[unit], gate);
    });
  }
  return *gate;
}

absl::Status UnitMoves::Reserve(std::size_t unit, NodeId target, std::uint32_t device) {
  const UnitHost::RowRun run{shapes_[unit].row_begin, shapes_[unit].row_end};
  return AwaitStatus(
      [&](HostDone done) { HostOf(target).Reserve(units_[unit], device, run, std::move(done)); });
}

absl::Status UnitMoves::Copy(std::size_t unit, NodeId source, NodeId target, ChunkTurn turn) {
  for (std::uint32_t chunk = 0; chunk < shapes_[unit].chunks(); ++chunk) {
    EMBLA_ASSIGN_OR_RETURN(Buffer rows,
                           Await<Buffer>([&](std::function<void(absl::StatusOr<Buffer>)> done) {
                             HostOf(source).ReadChunk(units_[unit], chunk, turn, std::move(done));
                           }));
    EMBLA_RETURN_IF_ERROR(AwaitStatus([&](HostDone done) {
      HostOf(target).Stage(units_[unit], chunk, std::move(rows), turn, std::move(done));
    }));
  }
  return absl::OkStatus();
}

absl::Status UnitMoves::CopyTwice(std::size_t unit, NodeId source, NodeId target,
                                  std::uint32_t device) {
  ScriptedGate& gate = StartMove(unit, source);
  EMBLA_RETURN_IF_ERROR(Reserve(unit, target, device));
  EMBLA_RETURN_IF_ERROR(Copy(unit, source, target, ChunkTurn::kWhenIdle));
  RunInOrder(HostOf(source), table_.spec.id, [&] { gate.Freeze(); });
  return Copy(unit, source, target, ChunkTurn::kNow);
}

absl::Status UnitMoves::Move(std::size_t unit, NodeId target, std::uint32_t device) {
  const NodeId source = OwnerOf(unit);
  EMBLA_RETURN_IF_ERROR(CopyTwice(unit, source, target, device));
  const auto old_gate = gates_[{source, units_[unit]}];
  auto gate = std::make_shared<ScriptedGate>(old_gate->windows(), Next(old_gate->epoch()));
  RunInOrder(HostOf(source), table_.spec.id, [&] { old_gate->Release(target); });
  EMBLA_RETURN_IF_ERROR(AwaitStatus(
      [&](HostDone done) { HostOf(target).Install(units_[unit], gate, std::move(done)); }));
  gates_[{target, units_[unit]}] = gate;
  {
    MutexLock lock(mu_);
    owners_[unit] = target;
  }
  EMBLA_RETURN_IF_ERROR(
      AwaitStatus([&](HostDone done) { HostOf(source).Trim(units_[unit], std::move(done)); }));
  return absl::OkStatus();
}

absl::Status UnitMoves::MoveInVain(std::size_t unit, NodeId target, std::uint32_t device) {
  const NodeId source = OwnerOf(unit);
  EMBLA_RETURN_IF_ERROR(CopyTwice(unit, source, target, device));
  EMBLA_RETURN_IF_ERROR(
      AwaitStatus([&](HostDone done) { HostOf(target).Discard(units_[unit], std::move(done)); }));
  const auto gate = gates_[{source, units_[unit]}];
  RunInOrder(HostOf(source), table_.spec.id, [&] { gate->Unfreeze(); });
  return absl::OkStatus();
}

absl::Status UnitMoves::ChangeDevice(std::size_t unit, std::uint32_t device) {
  const NodeId node = OwnerOf(unit);
  EMBLA_RETURN_IF_ERROR(Reserve(unit, node, device));
  return AwaitStatus([&](HostDone done) { HostOf(node).Relocate(units_[unit], std::move(done)); });
}

absl::Status UnitMoves::ChangeDeviceInVain(std::size_t unit, std::uint32_t device) {
  const NodeId node = OwnerOf(unit);
  EMBLA_RETURN_IF_ERROR(Reserve(unit, node, device));
  return AwaitStatus([&](HostDone done) { HostOf(node).Discard(units_[unit], std::move(done)); });
}

}  // namespace embla::testing
