// One trial of units that move between two nodes with journals, and between the devices of one,
// step by step, while either node is killed between any two steps, with what was not synced lost,
// or not. A model, a node that nothing moves on, gets the same updates, and has the same bits at
// the end.
//
// A table may have synchronous steps of two ranks. Replica groups are averaged at any time: what a
// frozen unit misses, it misses in the model, too. Units at rest are folded back at any time;
// trainers route some updates by an older plan, so that they come in halves, and some do not say by
// which. Snapshots' images are taken at any step of a move, whatever the plan says, and their rows
// are read long after them.
//
// The steps are a script of what a mover does (server/mover/mover_simulation_test.cc has movers
// that die); what a killed node knows of its units is what its journal says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/id_rows.h"
#include "server/journal/testing/journaled_node.h"
#include "server/journal/testing/lone_node.h"
#include "server/journal/testing/slow_snapshot.h"
#include "server/shard/testing/local_cluster.h"
#include "server/shard/testing/unit_moves.h"

namespace embla::testing {

class UnitTrial {
 public:
  struct Counts {
    int kills = 0;
    int snapshots = 0;
    int starts_amid_moves = 0;  // From images of units that were coming in, or kept.
    int folds = 0;
    int taken_apart = 0;
  };

  UnitTrial(std::uint32_t seed, Counts& counts);
  void Run();

 private:
  static constexpr TableId kTable{7};
  static constexpr std::uint64_t kSession = 3;  // Session of group 0; the next one is group 1's.
  static constexpr std::size_t kNodes = 2;
  static constexpr std::uint32_t kDevices = 2;  // Devices of each group.
  static constexpr std::uint32_t kRanks = 2;    // Ranks of tables with synchronous steps.

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
                        const std::set<std::uint32_t>& units) const;
  UpdateBatch HeaderOf(const Pending& update, std::uint32_t rank) const;
  // All ranks contribute at once; by rank.
  std::vector<absl::StatusOr<UpdateResult>> Contribute(ShardNode& node, const Pending& update,
                                                       const std::set<std::uint32_t>& units);
  void StepLeft(Pending& update);
  void AddStep(Pending& update);
  std::int64_t RandomId() {
    return static_cast<std::int64_t>(random_() % (spec_.zch.has_value() ? 2000 : spec_.rows));
  }
  float RandomGradient() { return static_cast<float>(random_() % 2001) / 1000.0f - 1.0f; }
  absl::StatusOr<UpdateResult> Send(ShardNode& node, const Pending& update,
                                    const std::vector<std::int64_t>& ids);

  // To whoever owns the rows; those that were refused are left, and at first those that the trainer
  // takes to be elsewhere: their nodes refuse them.
  void SendLeft(Pending& update);
  void Train();
  void SendPending();
  // Rows of updates that are still pending are in units that are left out: trainers know where the
  // others are.
  void Average();

  // ---- Deaths.
  bool MaybeKill(std::size_t n);
  // Its image is taken where nothing is owed: every record is in the journal, and done.
  void Snapshot(std::size_t n);
  // Tells of the unit what a mover would.
  RestoredUnit Logged(std::size_t n, std::uint32_t unit);
  void FinishSnapshot(std::size_t n);
  void MaybeKillAny();
  void MaybeSnapshot(std::size_t n);

  // ---- Folds.
  // A plan that says where the units are.
  void InstallOwners();
  void SetFolded(std::size_t n, std::uint32_t unit, PlanVersion plan);
  // The units of a node are at rest between two moves. Some join, if all goes well.
  void Fold(std::size_t n);

  // ---- The steps of a move; each may be repeated.
  void SetGate(std::size_t n, std::uint32_t unit, const std::shared_ptr<ScriptedGate>& gate);
  ScriptedGate& GateOf(std::size_t n, std::uint32_t unit);
  void Control(std::size_t n, std::uint32_t unit, const LogRecord& record);

  // Returns the versions of the chunks that the target holds of the move.
  ChunkVersions& EnsureImport(std::size_t n, std::uint32_t unit, const UnitShape& shape);
  // Chunks at `version` or later are not sent again.
  void Copy(std::size_t source, std::size_t target, std::uint32_t unit, Lsn version);
  // Until the target holds the unit, frozen at the source (whose death ends that). Returns the lsn.
  Lsn CopyFrozen(std::size_t source, std::size_t target, std::uint32_t unit);

  void Move(std::uint32_t unit);
  void MoveInVain(std::uint32_t unit);
  // To another device of the owner, or to the one where it lies.
  void MoveWithin(std::uint32_t unit, bool in_vain);

  // ---- The end.
  using Rows = std::map<std::pair<std::uint32_t, std::int64_t>, std::string>;  // By group and row.
  void AddRows(ShardNode& node, Rows& all);
  void Compare();

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

}  // namespace embla::testing
