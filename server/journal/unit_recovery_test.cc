// Units move between two nodes with journals, and between the devices of one, step by step, and
// either node is killed between any two steps, with what was not synced lost, or not: afterwards
// every row and all optimizer state have the bits of a node that nothing moved on, and no update is
// lost or applied twice. A table may have synchronous steps of two ranks. Replica groups are
// averaged at any time: what a frozen unit misses, it misses in the model, too. Units at rest are
// folded back at any time; trainers route some updates by an older plan, so that they come in
// halves, and some do not say by which. Snapshots' images are taken at any step of a move, whatever
// the plan says, and their rows are read long after them.
//
// The steps are a script of what a mover does (server/mover/mover_simulation_test.cc has movers
// that die); what a killed node knows of its units is what its journal says.
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/plan/id_rows.h"
#include "core/planner/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/journal/testing/journaled_node.h"
#include "server/journal/testing/lone_node.h"
#include "server/journal/testing/random_unit_table.h"
#include "server/journal/testing/slow_snapshot.h"
#include "server/shard/testing/local_cluster.h"
#include "server/shard/testing/row_images.h"
#include "server/shard/testing/unit_moves.h"

namespace embla::testing {
namespace {

constexpr TableId kTable{7};
constexpr std::uint64_t kSession = 3;  // Session of group 0; the next one is group 1's.
constexpr std::size_t kNodes = 2;
constexpr std::uint32_t kDevices = 2;  // Devices of each group.
constexpr std::uint32_t kRanks = 2;    // Ranks of tables with synchronous steps.

// An update, and what of it is not acknowledged yet.
struct Pending {
  std::uint32_t group = 0;
  std::uint64_t seq = 0;
  std::size_t plan = 0;  // Plan of the first attempt; 0: not sent.
  bool names_plan = true;
  bool is_images = false;  // Weights and state in place of gradients.
  std::map<std::int64_t, std::vector<float>> gradients;
  // In a synchronous step: by rank, and the units that have not made it.
  std::uint64_t step = 0;
  std::vector<std::map<std::int64_t, std::vector<float>>> contributions = {};
  std::set<std::uint32_t> units = {};

  bool is_done() const { return gradients.empty() && units.empty(); }
};

struct Counts {
  int kills = 0;
  int snapshots = 0;
  int starts_amid_moves = 0;  // From images of units that were coming in, or kept.
  int folds = 0;
  int taken_apart = 0;
};

class Trial {
 public:
  Trial(std::uint32_t seed, Counts& counts) : random_(seed), power_(seed), counts_(counts) {
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

  void Run() {
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

 private:
  template <typename T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }

  ShardNode& node(std::size_t n) { return nodes_[n]->node(); }
  UnitHost& host(std::size_t n) { return node(n).units(); }
  NodeJournal& journal(std::size_t n) { return nodes_[n]->journal(); }
  static UnitId IdOf(std::uint32_t unit) { return {kTable, unit, 0}; }
  std::uint32_t UnitOf(std::int64_t id) const {
    return RowGranuleOf(spec_, id_rows_->RowOf(RowId{id}));
  }

  // ---- Training.
  std::uint32_t StateFloats() const {
    const StateShape state = StateShapeOf(spec_.optimizer);
    return state.row_floats + state.element_arrays * spec_.dim;
  }

  // A rank's gradients for the units.
  UpdatePartData PartOf(const Pending& update, std::uint32_t rank,
                        const std::set<std::uint32_t>& units) const {
    UpdatePartData data;
    data.part.table = kTable;
    data.part.column_end = spec_.dim;
    data.part.clipped = true;
    std::vector<float> gradients;
    for (const auto& [id, row] : update.contributions[rank]) {
      if (!units.contains(UnitOf(id))) continue;
      data.ids.push_back(RowId{id});
      gradients.insert(gradients.end(), row.begin(), row.end());
    }
    data.gradients = EncodeRows(gradients, spec_.dim, DType::kFloat32);
    return data;
  }
  UpdateBatch HeaderOf(const Pending& update, std::uint32_t rank) const {
    UpdateBatch header;
    header.session = SessionId{kSession + rank};
    header.seq = UpdateSeq{update.seq};
    header.first_incomplete = UpdateSeq{pending_.front().seq};
    header.step = update.step;
    return header;
  }
  // All ranks contribute at once; by rank.
  std::vector<absl::StatusOr<UpdateResult>> Contribute(ShardNode& node, const Pending& update,
                                                       const std::set<std::uint32_t>& units) {
    using Result = absl::StatusOr<UpdateResult>;
    Mutex mu;
    std::vector<std::optional<Result>> results(kRanks);
    CondVar changed;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      UpdateBatch header = HeaderOf(update, rank);
      header.claim = StepClaim{.table = kTable, .rank = Rank{rank}, .resumes = false, .units = {}};
      for (const std::uint32_t unit : units)
        header.claim->units.Include(UnitSet({0, unit, unit + 1}));
      Packed<UpdateBatch> request = Pack(header, {PartOf(update, rank, units)});
      node.Update(std::move(request.batch), std::move(request.memory), absl::InfiniteFuture(),
                  [&, rank](Result result) {
                    const MutexLock lock(mu);
                    results[rank] = std::move(result);
                    changed.NotifyAll();
                  });
    }
    const MutexLock lock(mu);
    while (std::ranges::any_of(results, [](const auto& result) { return !result.has_value(); })) {
      changed.Wait(mu);
    }
    std::vector<Result> all;
    for (std::optional<Result>& result : results) all.push_back(*std::move(result));
    return all;
  }
  void StepLeft(Pending& update) {
    std::map<std::size_t, std::set<std::uint32_t>> by_node;
    // Like other updates, so that those of a row stay in their order.
    const bool is_first = update.plan == 0;
    if (is_first) update.plan = known_plan_;
    for (const std::uint32_t unit : update.units) {
      const bool is_known = owners_by_plan_[update.plan][unit] == owners_[unit];
      if (!is_first || is_known) by_node[owners_[unit]].insert(unit);
    }
    for (const auto& [n, units] : by_node) {
      std::set<std::uint32_t> claimed = units;
      // Units that are named to be sent again are here: without the others they step.
      while (!claimed.empty()) {
        if (random_() % 4 == 0) Contribute(node(n), update, claimed);  // Answers lost.
        std::set<std::uint32_t> again;
        std::set<std::uint32_t> refused;
        for (const auto& result : Contribute(node(n), update, claimed)) {
          ASSERT_THAT(result, IsOk());
          for (const RefusedClaim& claim : result->refused_claims) {
            for (std::uint32_t unit = claim.units.begin; unit < claim.units.end; ++unit) {
              (claim.reason == RefusedClaim::Reason::kAgain ? again : refused).insert(unit);
            }
          }
        }
        for (const std::uint32_t unit : claimed) {
          if (!again.contains(unit) && !refused.contains(unit)) update.units.erase(unit);
        }
        claimed = std::move(again);
      }
    }
  }
  void AddStep(Pending& update) {
    update.step = steps_++;
    for (std::uint32_t unit = 0; unit < spec_.row_granules; ++unit) update.units.insert(unit);
    std::vector<UpdatePartData> parts;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      auto& gradients = update.contributions.emplace_back();
      for (std::uint32_t n = random_() % 20; n > 0; --n) {
        std::vector<float>& row = gradients[RandomId()];
        row.clear();
        for (std::uint32_t c = 0; c < spec_.dim; ++c) row.push_back(RandomGradient());
      }
      parts.push_back(PartOf(update, rank, update.units));
    }
    Packed<UpdateBatch> request = Pack(HeaderOf(update, 0), parts);
    const auto modelled = Await<UpdateResult>([&](UpdateDone done) {
      model_->Update(std::move(request.batch), std::move(request.memory), absl::InfiniteFuture(),
                     std::move(done));
    });
    ASSERT_THAT(modelled, IsOk());
  }
  std::int64_t RandomId() {
    return static_cast<std::int64_t>(random_() % (spec_.zch.has_value() ? 2000 : spec_.rows));
  }
  float RandomGradient() { return static_cast<float>(random_() % 2001) / 1000.0f - 1.0f; }

  absl::StatusOr<UpdateResult> Send(ShardNode& node, const Pending& update,
                                    const std::vector<std::int64_t>& ids) {
    UpdatePartData data;
    data.part.table = kTable;
    data.part.column_end = spec_.dim;
    data.part.replica_group = update.group;
    std::vector<float> gradients;
    for (const std::int64_t id : ids) {
      data.ids.push_back(RowId{id});
      const std::vector<float>& row = update.gradients.at(id);
      gradients.insert(gradients.end(), row.begin(), row.end());
    }
    if (update.is_images) {
      data.part.form = UpdatePart::Form::kImages;
      data.part.state_floats = StateFloats();
    }
    const auto row_floats =
        static_cast<std::uint32_t>(data.part.row_bytes(DType::kFloat32) / sizeof(float));
    data.gradients = EncodeRows(gradients, row_floats, DType::kFloat32);
    UpdateBatch header;
    header.session = SessionId{kSession + update.group};
    header.seq = UpdateSeq{update.seq};
    header.first_incomplete = UpdateSeq{
        std::ranges::find(pending_, update.group, &Pending::group)->seq};  // Itself, or before it.
    header.step = update.seq;
    if (update.names_plan) header.routed_since = PlanVersion{update.plan};
    Packed<UpdateBatch> request = Pack(header, {data});
    return Await<UpdateResult>([&](UpdateDone done) {
      node.Update(std::move(request.batch), std::move(request.memory), absl::InfiniteFuture(),
                  std::move(done));
    });
  }

  // To whoever owns the rows; those that were refused are left, and at first those that the trainer
  // takes to be elsewhere: their nodes refuse them.
  void SendLeft(Pending& update) {
    const bool is_first = update.plan == 0;
    if (is_first) {
      update.plan = known_plan_;
      update.names_plan = random_() % 64 != 0;
    }
    std::map<std::size_t, std::vector<std::int64_t>> by_node;
    for (const auto& [id, gradient] : update.gradients) {
      const std::size_t owner = owners_[UnitOf(id)];
      if (is_first && owners_by_plan_[update.plan][UnitOf(id)] != owner) continue;
      by_node[owner].push_back(id);
    }
    for (const auto& [n, ids] : by_node) {
      if (random_() % 4 == 0) static_cast<void>(Send(node(n), update, ids));  // Answer lost.
      auto result = Send(node(n), update, ids);
      if (absl::IsFailedPrecondition(result.status())) {
        ASSERT_TRUE(host(n).AsksApart(kTable)) << result.status();
        while (!folded_[n].empty()) GateOf(n, folded_[n].begin()->first);
        ++counts_.taken_apart;
        ASSERT_FALSE(host(n).AsksApart(kTable));
        result = Send(node(n), update, ids);
      }
      ASSERT_THAT(result, IsOk());
      for (const std::int64_t id : ids) {
        const std::int64_t row = id_rows_->RowOf(RowId{id});
        const bool refused = std::any_of(
            result->refused.begin(), result->refused.end(),
            [row](const RefusedUnit& unit) { return unit.row_begin <= row && row < unit.row_end; });
        if (!refused) update.gradients.erase(id);
      }
    }
  }

  void Train() {
    for (int i = 0; i < 3; ++i) {
      Pending& update = pending_.emplace_back();
      update.group = random_() % spec_.replica_groups;
      update.seq = ++seq_;
      update.is_images = random_() % 4 == 0;
      if (spec_.sync.has_value() && !update.is_images) {
        AddStep(update);
        continue;
      }
      std::vector<std::int64_t> ids;
      for (int n = 0; n < 10; ++n) {
        const std::int64_t id = RandomId();
        std::vector<float>& gradient = update.gradients[id];
        if (!gradient.empty()) continue;
        ids.push_back(id);
        for (std::uint32_t c = 0; c < spec_.dim; ++c) {
          gradient.push_back(RandomGradient());
        }
        for (std::uint32_t c = 0; update.is_images && c < StateFloats(); ++c) {
          gradient.push_back(static_cast<float>(random_() % 1000));
        }
      }
      std::sort(ids.begin(), ids.end());
      const auto modelled = Send(*model_, update, ids);
      ASSERT_THAT(modelled, IsOk());
    }
    // One plan for all: rows are updated in the order of the updates.
    const std::size_t newest = owners_by_plan_.size() - 1;
    known_plan_ = random_() % 4 == 0 ? std::max<std::size_t>(newest - 1, 1) : newest;
    SendPending();
    const bool is_known = owners_by_plan_[known_plan_] == owners_;
    if (spec_.replica_groups > 1 && is_known && random_() % 2 == 0) Average();
  }

  void SendPending() {
    for (Pending& update : pending_) {
      update.contributions.empty() ? SendLeft(update) : StepLeft(update);
    }
    std::erase_if(pending_, [](const Pending& update) { return update.is_done(); });
  }

  // Rows of updates that are still pending are in units that are left out: trainers know where the
  // others are.
  void Average() {
    DecidedSync averaged{.tables = {{kTable, {}}}};
    for (std::size_t n = 0; n < kNodes; ++n) {
      const auto synced = Await<SyncResult>([&](SyncDone done) {
        node(n).Sync({{kTable}, PlanVersion{1}}, absl::InfiniteFuture(), std::move(done));
      });
      if (absl::IsFailedPrecondition(synced.status())) continue;  // Nothing was ever there.
      ASSERT_THAT(synced, IsOk());
      std::vector<AveragedRows>& rows = averaged.tables[0].rows;
      rows.insert(rows.end(), synced->tables[0].averaged.begin(), synced->tables[0].averaged.end());
    }
    ASSERT_THAT(Await<Applied>([&](AppliedDone done) {
                  model_->Apply(std::move(averaged), Buffer(), std::move(done));
                }),
                IsOk());
  }

  // ---- Deaths.
  bool MaybeKill(std::size_t n) {
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
  // Its image is taken where nothing is owed: every record is in the journal, and done.
  void Snapshot(std::size_t n) {
    FinishSnapshot(n);
    bool is_amid_move = false;
    snapshots_[n].Begin(journal(n), [&] {
      std::vector<RestoredUnit> units;
      for (std::uint32_t unit = 0; unit < owners_.size(); ++unit) {
        const bool has_gate = gates_[n].contains(unit) && gates_[n][unit] != nullptr;
        const bool has_import = restored_[n].contains(unit) && restored_[n][unit].has_memory;
        if (!has_gate && !has_import && !folded_[n].contains(unit)) continue;
        const RestoredUnit& known = units.emplace_back(Logged(n, unit));
        is_amid_move |= known.has_memory || known.durable.released.has_value();
      }
      return units;
    });
    begins_amid_move_[n] = is_amid_move;
  }
  // Tells of the unit what a mover would.
  RestoredUnit Logged(std::size_t n, std::uint32_t unit) {
    RestoredUnit logged{.unit = IdOf(unit), .durable = {}, .staged = {}, .run = {}};
    UnitDurable& durable = logged.durable;
    durable = FreshUnit(host(n).ShapeOf(IdOf(unit))->chunks());
    durable.min_move = moves_[unit];
    durable.epoch = owners_[unit] == n ? epochs_[unit] : UnitEpoch{0};
    if (const auto& gate = gates_[n][unit]; gate != nullptr) durable.windows = gate->windows();
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
  void FinishSnapshot(std::size_t n) {
    if (!snapshots_[n].is_under_way()) return;
    const absl::Status taken = snapshots_[n].Finish();
    ASSERT_THAT(taken, IsOk());
    ++counts_.snapshots;
    is_amid_move_[n] = begins_amid_move_[n];
  }

  void MaybeKillAny() {
    MaybeSnapshot(random_() % kNodes);
    MaybeKill(0);
    MaybeKill(1);
  }
  void MaybeSnapshot(std::size_t n) {
    if (random_() % 4 == 0) Snapshot(n);
  }

  // ---- Folds.
  // A plan that says where the units are.
  void InstallOwners() {
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

  void SetFolded(std::size_t n, std::uint32_t unit, PlanVersion plan) {
    RunInOrder(host(n), kTable, [&] {
      host(n).SetGate(IdOf(unit), std::make_shared<ScriptedGate>(UnitWindows()));
      host(n).JoinRest(IdOf(unit), UnitWindows(), plan);
    });
    folded_[n][unit] = plan;
  }

  // The units of a node are at rest between two moves. Some join, if all goes well.
  void Fold(std::size_t n) {
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

  // ---- The steps of a move; each may be repeated.
  void SetGate(std::size_t n, std::uint32_t unit, const std::shared_ptr<ScriptedGate>& gate) {
    RunInOrder(host(n), kTable, [&] { host(n).SetGate(IdOf(unit), gate); });
    gates_[n][unit] = gate;
  }
  ScriptedGate& GateOf(std::size_t n, std::uint32_t unit) {
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
  void Control(std::size_t n, std::uint32_t unit, const LogRecord& record) {
    const absl::Status written = AwaitStatus(
        [&](const HostDone& done) { journal(n).AppendControl(IdOf(unit), record, done); });
    ASSERT_THAT(written, IsOk());
  }

  // Returns the versions of the chunks that the target holds of the move.
  ChunkVersions& EnsureImport(std::size_t n, std::uint32_t unit, const UnitShape& shape) {
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

  // Chunks at `version` or later are not sent again.
  void Copy(std::size_t source, std::size_t target, std::uint32_t unit, Lsn version) {
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

  // Until the target holds the unit, frozen at the source (whose death ends that). Returns the lsn.
  Lsn CopyFrozen(std::size_t source, std::size_t target, std::uint32_t unit) {
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

  void Move(std::uint32_t unit) {
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

  void MoveInVain(std::uint32_t unit) {
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

  // To another device of the owner, or to the one where it lies.
  void MoveWithin(std::uint32_t unit, bool in_vain) {
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

  // ---- The end.
  using Rows = std::map<std::pair<std::uint32_t, std::int64_t>, std::string>;  // By group and row.
  void AddRows(ShardNode& node, Rows& all) {
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

  void Compare() {
    Rows expected, got;
    AddRows(*model_, expected);
    for (std::size_t n = 0; n < kNodes; ++n) AddRows(node(n), got);
    ASSERT_EQ(expected.size(), got.size());
    for (const auto& [key, image] : expected) {
      EXPECT_TRUE(got[key] == image) << "group " << key.first << " row " << key.second;
    }
  }

  std::mt19937 random_;
  std::mt19937_64 power_;
  TableSpec spec_;
  std::optional<IdRows> id_rows_;
  Durability level_ = Durability::kWritten;
  std::vector<NodeSpec> specs_;
  BufferPool pool_;
  std::unique_ptr<ShardNode> model_;
  std::vector<std::unique_ptr<JournaledNode>> nodes_;
  SlowSnapshot snapshots_[kNodes];
  // By unit.
  std::vector<std::size_t> owners_;
  std::vector<std::uint32_t> devices_;  // In group 0.
  std::vector<UnitEpoch> epochs_;
  std::vector<MoveId> moves_;
  // By node and unit: of the process that runs, and what its journal said, with what was done
  // since.
  std::map<std::uint32_t, std::shared_ptr<ScriptedGate>> gates_[kNodes];
  std::map<std::uint32_t, RestoredUnit> restored_[kNodes];
  std::map<std::uint32_t, PlanVersion> folded_[kNodes];
  std::map<std::uint32_t, ReleasedState> released_[kNodes];  // Units that are kept.
  // Whether the image of the snapshot that is under way, and of the newest, was taken amid a move.
  bool begins_amid_move_[kNodes] = {};
  bool is_amid_move_[kNodes] = {};
  TablePlan table_;                                       // The first plan's.
  std::vector<std::vector<std::size_t>> owners_by_plan_;  // There is no plan 0.
  std::size_t known_plan_ = 1;                            // To trainers.
  std::vector<Pending> pending_;
  std::uint64_t seq_ = 0;
  std::uint64_t steps_ = 0;
  Counts& counts_;  // Not owned; those of all trials.
};

TEST(UnitRecovery, UnitsMoveBetweenNodesThatDieAndKeepTheBitsOfNoMove) {
  const std::vector<std::uint32_t> seeds = TestSeeds(20);
  Counts counts;
  for (const std::uint32_t seed : seeds) {
    if (HasFailure()) break;
    SCOPED_TRACE(absl::StrCat("EMBLA_TEST_SEED=", seed));
    Trial trial(seed, counts);
    trial.Run();
  }
  std::cout << counts.kills << " kills, " << counts.snapshots << " snapshots, " << counts.folds
            << " units folded back, " << counts.taken_apart << " times taken apart, "
            << counts.starts_amid_moves << " starts amid moves\n";
  // Units of tables with steps are not folded back.
  EXPECT_TRUE(seeds.size() == 1 || counts.folds > 0);
  EXPECT_TRUE(seeds.size() == 1 || counts.taken_apart > 0);
  EXPECT_GT(counts.kills, static_cast<int>(seeds.size()));
  EXPECT_TRUE(seeds.size() == 1 || counts.starts_amid_moves > 0);
}

}  // namespace
}  // namespace embla::testing
