// Moves of units and folds in a trial, step by step; each step may be repeated.
#include "server/journal/testing/unit_trial.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/journal/testing/random_unit_table.h"

namespace embla::testing {

void UnitTrial::InstallOwners() {
  TablePlan table = table_;
  for (std::uint32_t group = 0; group < spec_.replica_groups; ++group) {
    std::vector<DeviceId> places;
    for (std::uint32_t unit = 0; unit < owners_.size(); ++unit) {
      const NodeId owner{static_cast<std::uint32_t>(owners_[unit] + 1)};
      places.push_back({owner, group * kDevices + devices_[unit]});
    }
    table.replicas[group] = TilingOf(spec_, places);
  }
  const PlanVersion version{owners_by_plan_.size()};
  const auto plan = std::make_shared<const Plan>(version, "test", specs_, std::vector{table});
  for (std::size_t n = 0; n < kNodes; ++n) {
    const absl::Status installed = node(n).InstallPlan(plan, specs_[n].id);
    ASSERT_THAT(installed, IsOk());
  }
  owners_by_plan_.push_back(owners_);
}

void UnitTrial::SetFolded(std::size_t n, std::uint32_t unit, PlanVersion plan) {
  RunInOrder(host(n), kTable, [&] {
    host(n).SetGate(IdOf(unit), std::make_shared<ScriptedGate>(UnitWindows()));
    host(n).JoinRest(IdOf(unit), UnitWindows(), plan);
  });
  folded_[n][unit] = plan;
}

void UnitTrial::Fold(std::size_t n) {
  InstallOwners();
  const PlanVersion plan{owners_by_plan_.size() - 1};
  RunInOrder(host(n), kTable, [&] { host(n).StepFold(kTable, plan); });
  for (const auto& [unit, gate] : gates_[n]) {
    RunInOrder(host(n), kTable, [&] { host(n).NoteForFold(IdOf(unit), gate->windows(), plan); });
  }
  const bool is_quiet = random_() % 4 == 0;  // Trainers send nothing until it is over.
  for (int round = 0; round < 2; ++round) {
    if (!is_quiet) Train();
    if (round == 0 && MaybeKill(n)) return;
    RunInOrder(host(n), kTable, [&] { host(n).StepFold(kTable, plan); });
  }
  std::erase_if(gates_[n], [&](const auto& entry) {
    const auto& [unit, gate] = entry;
    bool joins = false;
    RunInOrder(host(n), kTable, [&] {
      joins = host(n).MayJoin(IdOf(unit)) != PlanVersion{};
      if (!joins) return;
      EMBLA_CHECK(journal(n).AppendFolded(IdOf(unit), plan).ok());
      host(n).JoinRest(IdOf(unit), gate->windows(), plan);
    });
    if (joins) folded_[n][unit] = plan, ++counts_.folds;
    return joins;
  });
  Train();
  MaybeKill(n);
}

void UnitTrial::SetGate(std::size_t n, std::uint32_t unit,
                        const std::shared_ptr<ScriptedGate>& gate) {
  RunInOrder(host(n), kTable, [&] { host(n).SetGate(IdOf(unit), gate); });
  gates_[n][unit] = gate;
}

ScriptedGate& UnitTrial::GateOf(std::size_t n, std::uint32_t unit) {
  std::shared_ptr<ScriptedGate>& gate = gates_[n][unit];
  if (gate == nullptr) {
    RunInOrder(host(n), kTable, [&] {
      EMBLA_CHECK(journal(n).AppendAdopted(IdOf(unit), epochs_[unit]).ok());
      gate = std::make_shared<ScriptedGate>(host(n).WindowsOf(IdOf(unit)));
      host(n).SetGate(IdOf(unit), gate);
    });
    folded_[n].erase(unit);
  }
  return *gate;
}

void UnitTrial::Control(std::size_t n, std::uint32_t unit, const LogRecord& record) {
  const absl::Status written = AwaitStatus([&](const HostDone& done) {
    EMBLA_CHECK(journal(n).AppendControl(IdOf(unit), record, done).ok());
  });
  ASSERT_THAT(written, IsOk());
}

ChunkVersions& UnitTrial::EnsureImport(std::size_t n, std::uint32_t unit, const UnitShape& shape) {
  RestoredUnit& known = restored_[n][unit];
  const auto& import = known.durable.import;
  if (import.has_value() && import->move == moves_[unit]) return known.staged;
  const UnitId id = IdOf(unit);
  const RowRun run{shape.row_begin, shape.row_end};
  const auto device = static_cast<std::uint32_t>(random_() % kDevices);
  absl::Status status =
      AwaitStatus([&](HostDone done) { host(n).Reserve(id, device, run, std::move(done)); });
  EXPECT_THAT(status, IsOk());
  EXPECT_THAT(journal(n).AppendReserved(id, device, run), IsOk());
  const NodeId source{static_cast<std::uint32_t>(owners_[unit] + 1)};
  Control(n, unit, ImportRecord{moves_[unit], source, epochs_[unit]});
  known.durable.import = ImportState{.move = moves_[unit], .source = source};
  known.has_memory = true;
  known.device = device;
  known.run = run;
  known.staged.assign(shape.chunks(), Lsn{0});
  return known.staged;
}

void UnitTrial::Copy(std::size_t source, std::size_t target, std::uint32_t unit, Lsn version) {
  const UnitShape shape = *host(target).ShapeOf(IdOf(unit));
  ChunkVersions& staged = EnsureImport(target, unit, shape);
  for (std::uint32_t c = 0; c < shape.chunks(); ++c) {
    if (staged[c] >= version) continue;
    auto read = Await<Buffer>([&](std::function<void(absl::StatusOr<Buffer>)> done) {
      host(source).ReadChunk(IdOf(unit), c, {}, std::move(done));
    });
    ASSERT_THAT(read, IsOk());
    const SharedBuffer rows(*std::move(read));
    const absl::Status status = AwaitStatus(
        [&](HostDone done) { host(target).Stage(IdOf(unit), c, rows, {}, std::move(done)); });
    ASSERT_THAT(status, IsOk());
    const Chunk chunk{.move = moves_[unit], .chunk = c, .version = version};
    ASSERT_THAT(journal(target).AppendChunk(IdOf(unit), chunk, rows.bytes()), IsOk());
    staged[c] = version;
    MaybeSnapshot(target);
  }
}

Lsn UnitTrial::CopyFrozen(std::size_t source, std::size_t target, std::uint32_t unit) {
  moves_[unit] = Next(moves_[unit]);
  GateOf(source, unit);
  Train();
  MaybeKillAny();
  GateOf(source, unit);
  Lsn cut{1};
  Copy(source, target, unit, cut);
  Train();
  MaybeKillAny();
  for (bool is_held = false; !is_held && !::testing::Test::HasFailure();) {
    cut = Next(cut);
    ScriptedGate& gate = GateOf(source, unit);
    RunInOrder(host(source), kTable, [&] { gate.Freeze(); });
    Train();
    if (MaybeKill(source)) continue;
    Copy(source, target, unit, cut);
    is_held = !MaybeKill(target);
  }
  return cut;
}

void UnitTrial::Move(std::uint32_t unit) {
  const std::size_t source = owners_[unit], target = 1 - source;
  const Lsn cut = CopyFrozen(source, target, unit);
  if (::testing::Test::HasFailure()) return;
  epochs_[unit] = Next(epochs_[unit]);
  const UnitWindows windows = GateOf(source, unit).windows();
  const std::uint32_t chunks = host(source).ShapeOf(IdOf(unit))->chunks();
  const NodeId to{static_cast<std::uint32_t>(target + 1)};
  const ReleasedState released{moves_[unit], to, epochs_[unit]};
  Control(source, unit, ReleaseRecord{released, cut, ChunkVersions(chunks, cut)});
  ScriptedGate& old = GateOf(source, unit);
  RunInOrder(host(source), kTable, [&] { old.Release(to); });
  released_[source][unit] = released;
  Train();
  MaybeKillAny();
  Copy(source, target, unit, cut);  // Chunks that were lost with a tail are sent again.
  devices_[unit] = restored_[target][unit].device;
  Control(target, unit, OwnRecord{epochs_[unit], moves_[unit], cut, windows});
  if (!MaybeKill(target)) {
    auto gate = std::make_shared<ScriptedGate>(windows);
    const absl::Status status = AwaitStatus(
        [&](HostDone done) { host(target).Install(IdOf(unit), gate, std::move(done)); });
    ASSERT_THAT(status, IsOk());
    gates_[target][unit] = gate;
    restored_[target].erase(unit);
  }
  ASSERT_NE(gates_[target][unit], nullptr);
  EXPECT_EQ(gates_[target][unit]->windows(), windows);
  owners_[unit] = target;
  Train();
  MaybeKillAny();
  Control(source, unit, TrimRecord{moves_[unit]});
  released_[source].erase(unit);
  if (!MaybeKill(source)) {
    const absl::Status status =
        AwaitStatus([&](HostDone done) { host(source).Trim(IdOf(unit), std::move(done)); });
    ASSERT_THAT(status, IsOk());
    SetGate(source, unit, nullptr);
  }
  gates_[source].erase(unit);
  Train();
  MaybeKillAny();
}

void UnitTrial::MoveInVain(std::uint32_t unit) {
  const std::size_t source = owners_[unit], target = 1 - source;
  CopyFrozen(source, target, unit);
  if (::testing::Test::HasFailure()) return;
  Control(target, unit, DiscardRecord{moves_[unit]});
  if (!MaybeKill(target)) {
    const absl::Status status =
        AwaitStatus([&](HostDone done) { host(target).Discard(IdOf(unit), std::move(done)); });
    ASSERT_THAT(status, IsOk());
    restored_[target].erase(unit);
  }
  ScriptedGate& gate = GateOf(source, unit);
  Control(source, unit, AbortRecord{moves_[unit]});
  if (MaybeKill(source)) return Train();
  RunInOrder(host(source), kTable, [&] { gate.Unfreeze(); });
  Train();
}

void UnitTrial::MoveWithin(std::uint32_t unit, bool in_vain) {
  const std::size_t n = owners_[unit];
  moves_[unit] = Next(moves_[unit]);
  GateOf(n, unit);
  Train();
  MaybeKillAny();
  GateOf(n, unit);
  EnsureImport(n, unit, *host(n).ShapeOf(IdOf(unit)));
  Train();
  MaybeKillAny();
  Train();
  if (!in_vain) devices_[unit] = restored_[n][unit].device;
  in_vain ? Control(n, unit, DiscardRecord{moves_[unit]})
          : Control(n, unit, RelocateRecord{moves_[unit]});
  Train();
  if (!MaybeKill(n)) {
    const absl::Status status = AwaitStatus([&](HostDone done) {
      in_vain ? host(n).Discard(IdOf(unit), std::move(done))
              : host(n).Relocate(IdOf(unit), std::move(done));
    });
    ASSERT_THAT(status, IsOk());
    restored_[n].erase(unit);
  }
  Train();
  MaybeKillAny();
}

}  // namespace embla::testing
