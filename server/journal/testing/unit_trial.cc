#include "server/journal/testing/unit_trial.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/testing/status_matchers.h"
#include "core/planner/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/journal/testing/random_unit_table.h"
#include "server/shard/testing/row_images.h"

namespace embla::testing {

UnitTrial::UnitTrial(std::uint32_t seed, Counts& counts)
    : random_(seed), power_(seed), counts_(counts) {
  spec_ = RandomUnitTable(kTable, random_);
  id_rows_.emplace(spec_);
  level_ = Pick({Durability::kWritten, Durability::kSynced});
  for (std::uint32_t n = 0; n < kNodes; ++n) {
    NodeSpec& node = specs_.emplace_back();
    node.id = NodeId{n + 1};
    node.name = absl::StrCat("n", n);
    node.address = absl::StrCat("127.0.0.1:", n + 1);
    node.devices.resize(kDevices * spec_.replica_groups,
                        DeviceSpec{DeviceKind::kCpu, std::int64_t{1} << 28});
  }
  PlacementRequest request;
  request.sharding = Pick({ShardingType::kRowWise, ShardingType::kTableWise});
  absl::StatusOr<TablePlan> table = PlaceTable(spec_, request, specs_, {});
  EMBLA_CHECK(table.ok());
  if (spec_.sync.has_value()) {
    table->steps = {.version = PlanVersion{1}, .members = {{.ranks = {Rank{0}, Rank{1}}}}};
  }
  table_ = *table;
  const auto plan =
      std::make_shared<const Plan>(PlanVersion{1}, "test", specs_, std::vector{*table});
  for (const NodeSpec& node : specs_) {
    JournaledNode::Options options;
    options.node.name = node.name;
    options.node.devices = node.devices;
    options.journal.level = level_;
    options.journal.log.segment_bytes_max = 1 << 20;
    options.journal.snapshots.changes_share = 20;
    nodes_.push_back(std::make_unique<JournaledNode>(options));
    EMBLA_CHECK(nodes_.back()->node().InstallPlan(plan, node.id).ok());
  }
  TableSpec modelled = spec_;  // A step of all ranks is one update of it.
  modelled.sync.reset();
  model_ = MakeLoneNode(modelled, specs_[0], pool_);
  for (std::uint32_t granule = 0; granule < spec_.row_granules; ++granule) {
    const std::int64_t row = spec_.RowGranuleBegin(granule);
    for (const Slice& slice : table->primary()) {
      if (slice.row_begin <= row && row < slice.row_end) {
        owners_.push_back(ToInt(slice.device.node) - 1);
        devices_.push_back(slice.device.index);
      }
    }
  }
  epochs_.assign(owners_.size(), UnitEpoch{1});
  moves_.assign(owners_.size(), MoveId{0});
  owners_by_plan_ = {{}, owners_};
}

void UnitTrial::Run() {
  for (int i = 0; i < 8 && !::testing::Test::HasFailure(); ++i) {
    Train();
    if (random_() % 3 != 0) Fold(random_() % kNodes);
    if (random_() % 4 == 0) InstallOwners();
    if (random_() % 2 == 0) Snapshot(random_() % kNodes);
    const auto unit = static_cast<std::uint32_t>(random_() % owners_.size());
    const bool in_vain = random_() % 4 == 0;
    if (random_() % 3 == 0) {
      MoveWithin(unit, in_vain);
    } else {
      in_vain ? MoveInVain(unit) : Move(unit);
    }
  }
  Train();
  SendPending();  // Sends the rows that the trainer routed to the other node.
  EXPECT_TRUE(pending_.empty());
  Compare();
}

bool UnitTrial::MaybeKill(std::size_t n) {
  if (random_() % 4 == 0) FinishSnapshot(n);
  if (random_() % 4 != 0) return false;
  FinishSnapshot(n);
  nodes_[n]->Kill();
  if (level_ == Durability::kSynced && random_() % 2 == 0) nodes_[n]->disk().LosePower(power_);
  nodes_[n]->Start();
  ++counts_.kills;
  if (std::exchange(is_amid_move_[n], false)) ++counts_.starts_amid_moves;
  gates_[n].clear();
  folded_[n].clear();
  restored_[n].clear();
  for (const RestoredUnit& unit : journal(n).recovery().node.units) {
    restored_[n][unit.unit.row_granule] = unit;
    const UnitDurable& durable = unit.durable;
    if (durable.epoch == UnitEpoch{0} && !durable.released.has_value()) continue;
    if (unit.folded != PlanVersion{}) {
      SetFolded(n, unit.unit.row_granule, unit.folded);
      continue;
    }
    auto gate = std::make_shared<ScriptedGate>(durable.windows);
    if (durable.epoch == UnitEpoch{0}) gate->Release(NodeId{});
    SetGate(n, unit.unit.row_granule, gate);
  }
  return true;
}

void UnitTrial::Snapshot(std::size_t n) {
  FinishSnapshot(n);
  bool is_amid_move = false;
  snapshots_[n].Begin(journal(n), [&] {
    std::vector<RestoredUnit> units;
    for (std::uint32_t unit = 0; unit < owners_.size(); ++unit) {
      const bool has_gate = gates_[n].contains(unit);
      const bool has_import = restored_[n].contains(unit) && restored_[n][unit].has_memory;
      if (!has_gate && !has_import && !folded_[n].contains(unit)) continue;
      const RestoredUnit& known = units.emplace_back(Logged(n, unit));
      is_amid_move |= known.has_memory || known.durable.released.has_value();
    }
    return units;
  });
  begins_amid_move_[n] = is_amid_move;
}

RestoredUnit UnitTrial::Logged(std::size_t n, std::uint32_t unit) {
  RestoredUnit logged{.unit = IdOf(unit), .durable = {}, .staged = {}, .run = {}};
  UnitDurable& durable = logged.durable;
  durable = FreshUnit(host(n).ShapeOf(IdOf(unit))->chunks());
  durable.min_move = moves_[unit];
  durable.epoch = owners_[unit] == n ? epochs_[unit] : UnitEpoch{0};
  if (const auto gate = gates_[n].find(unit); gate != gates_[n].end()) {
    durable.windows = gate->second->windows();
  }
  if (const auto folded = folded_[n].find(unit); folded != folded_[n].end()) {
    logged.folded = folded->second;
  }
  if (const auto released = released_[n].find(unit); released != released_[n].end()) {
    durable.epoch = UnitEpoch{0};
    durable.released = released->second;
  }
  logged.staged.assign(durable.touched.size(), Lsn{0});
  const auto import = restored_[n].find(unit);
  if (import == restored_[n].end() || !import->second.has_memory) return logged;
  durable.import = import->second.durable.import;
  logged.staged = import->second.staged;
  logged.has_memory = true;
  logged.device = import->second.device;
  logged.run = import->second.run;
  return logged;
}

void UnitTrial::FinishSnapshot(std::size_t n) {
  if (!snapshots_[n].is_under_way()) return;
  const absl::Status taken = snapshots_[n].Finish();
  ASSERT_THAT(taken, IsOk());
  ++counts_.snapshots;
  is_amid_move_[n] = begins_amid_move_[n];
}

void UnitTrial::MaybeKillAny() {
  MaybeSnapshot(random_() % kNodes);
  MaybeKill(0);
  MaybeKill(1);
}

void UnitTrial::MaybeSnapshot(std::size_t n) {
  if (random_() % 4 == 0) Snapshot(n);
}

void UnitTrial::AddRows(ShardNode& node, Rows& all) {
  for (std::uint32_t group = 0; group < spec_.replica_groups; ++group) {
    absl::StatusOr<NodeRows> rows = ReadNodeRows(node, spec_, group);
    if (absl::IsFailedPrecondition(rows.status())) continue;  // Nothing was ever there.
    ASSERT_THAT(rows, IsOk());
    for (auto& [place, image] : *rows) {
      EXPECT_TRUE(all.try_emplace({group, place.first}, std::move(image)).second)
          << "row " << place.first << " is on two nodes";
    }
  }
}

void UnitTrial::Compare() {
  Rows expected, got;
  AddRows(*model_, expected);
  for (std::size_t n = 0; n < kNodes; ++n) AddRows(node(n), got);
  ASSERT_EQ(expected.size(), got.size());
  for (const auto& [key, image] : expected) {
    EXPECT_TRUE(got[key] == image) << "group " << key.first << " row " << key.second;
  }
}

}  // namespace embla::testing
