// The world in which the model checker explores synchronous steps: trainers, nodes, coordinator and
// network around the production code of server/steps and core/plan/step_members.h. A value; every
// step is deterministic.
//
// The network never takes a message out: that covers loss (never delivered), delay, reordering and
// duplication. kLoseMessages empties it, so that progress may not lean on a message kept for ever.
// A unit's rows are modelled by what was counted in them: per step and session, whether it was.
// Units are handed over at one moment, by the cut that was made when they froze: how that comes
// about is the other model's (world.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/step_members.h"
#include "server/steps/step_guards.h"
#include "server/steps/sync_steps.h"

namespace embla::model {

inline constexpr int kStepUnitsMax = 3;
inline constexpr int kStepRanksMax = 3;
inline constexpr int kStepLivesMax = 2;

// A session's contribution to a step, in what is counted of a unit; and a rank's.
constexpr std::uint32_t StepsBitOf(int rank, int life, int step) {
  return 1u << ((step * kStepRanksMax + rank) * kStepLivesMax + life);
}
constexpr std::uint32_t StepsRankBitOf(int rank, int step) {
  return 1u << (step * kStepRanksMax + rank);
}
UnitSet StepsUnitOf(int unit);
// -1: the unit is not there.
int NextStepOf(const SyncSteps& steps, int unit);

struct StepsConfig {
  int nodes = 2;
  int units = 2;  // Unit u lies on node u mod nodes at first.
  int ranks = 2;
  int steps = 1;
  int ahead = 0;             // Trainers send 0 or 1 steps before the last one is acknowledged.
  int moves = 0;             // To the next node, by freezes that may be called off.
  int restarts = 0;          // A trainer dies, and its rank goes on with a new session.
  int deaths = 0;            // A trainer dies for good.
  int timeouts = 0;          // A living rank is taken to be silent.
  bool fails = false;        // Tables are declared to fail when a rank is silent, not to close it.
  bool joins = false;        // The last rank is no member at first.
  bool has_empties = false;  // Rank 1 has no rows in unit 0.
  int crashes = 0;           // Crashes of nodes, with the records that are not synced.
  bool has_late_syncs = false;  // Records are synced some time after the step.
  bool is_lossy = false;
  StepGuards guards = {};
};

// The content of a unit's rows, by StepsBitOf.
struct StepsContent {
  std::uint32_t counted = 0;
  std::uint32_t window = 0;
  std::uint8_t made = 0;  // By step.
  bool is_twice = false;
  bool operator==(const StepsContent&) const = default;
};
using StepsContents = std::array<StepsContent, kStepUnitsMax>;

struct StepsNode {
  SyncSteps live;
  StepsContents content;
  SyncSteps synced;  // State that the next process begins with; nothing waits.
  StepsContents synced_content;
  std::vector<std::uint32_t> unsent;  // Acknowledgements that wait for the record.
};

struct StepsTrainer {
  enum class State : std::uint8_t { kAbsent, kRuns, kDead, kClosed, kDone };
  State state = State::kRuns;
  int life = 0;                                        // Number of the rank's session.
  int step = 0;                                        // The first one that is not acknowledged.
  int resumes_until = 0;                               // Steps before it resume.
  std::array<std::uint8_t, 2> acked = {};              // By unit, of this step and the next one.
  std::array<std::uint8_t, kStepUnitsMax> route = {};  // The node it takes the unit to be on.
};

struct StepsUnit {
  int owner = 0;
  std::optional<StepsContent> cut;  // While it is frozen.
  int cut_step = 0;
  std::uint32_t acked = 0;  // By rank and step.
};

struct StepsWorld {
  std::vector<StepsNode> nodes;
  std::vector<StepsTrainer> trainers;
  std::vector<StepsUnit> units;
  int plan = 0;  // The one that the store has: of StepsModel::plans_.
  int moves = 0;
  int restarts = 0;
  int deaths = 0;
  int timeouts = 0;
  int crashes = 0;
  std::vector<std::uint32_t> messages;  // Ascending.
  std::string broken;                   // A violation that a step found.
};

enum class StepsStepKind : std::uint8_t {
  kSend,
  kDeliver,
  kFreeze,
  kUnfreeze,
  kHandOver,
  kSync,
  kCrash,
  kDie,
  kRestart,
  kReport,
  kJoin,
  kDecide,
  kRepeat,
  kLoseMessages,
};

struct StepsStep {
  StepsStepKind kind{};
  int who = 0;            // Trainer, node or unit.
  std::uint32_t arg = 0;  // Node, message or step.
};

class StepsModel {
 public:
  using Config = StepsConfig;
  using World = StepsWorld;
  using Step = StepsStep;

  explicit StepsModel(const StepsConfig& config) : config_(config) {}

  World Initial();
  std::vector<Step> EnabledSteps(const World& world) const;
  void Take(const Step& step, World& world);
  std::string Describe(const Step& step) const;

  std::optional<std::string> Violation(const World& world) const;
  // No trainer waits: each has made its steps, is dead or was told that it is out. All units have
  // made the steps that one has made.
  bool IsGoal(const World& world) const;

 private:
  using Kind = StepsStepKind;
  // A message, in one number.
  struct Letter {
    enum class Kind : std::uint8_t { kContribution, kAck, kMoved, kPlan, kSaid, kLacks };
    Kind kind{};
    int node = 0;
    int rank = 0;
    int life = 0;
    int step = 0;
    std::uint32_t set = 0;  // Set of units, or of ranks.
    bool resumes = false;
    int plan = 0;  // Its place; kSaid: the change; kContribution: what the sender goes by.

    std::uint32_t Pack() const;
    static Letter Unpack(std::uint32_t packed);
  };

  const StepPlan& plan(const World& world) const { return plans_[world.plan]; }
  int Keep(const StepPlan& plan);
  bool HasRows(int rank, int unit) const { return !config_.has_empties || rank != 1 || unit != 0; }
  std::uint32_t RoutedTo(const StepsTrainer& trainer, int node, int ahead) const;
  bool MayOpen(const World& world, std::uint32_t ranks) const;

  void AddTrainerSteps(const World& world, std::vector<Step>& steps) const;
  void AddUnitSteps(const World& world, std::vector<Step>& steps) const;
  void AddNodeSteps(const World& world, std::vector<Step>& steps) const;
  void AddDeliveries(const World& world, std::vector<Step>& steps) const;
  std::vector<std::uint32_t> Answered(const World& world) const;

  void Send(int rank, int node, int ahead, World& world);
  bool Awaits(const StepsTrainer& trainer, const Letter& letter) const;
  void Deliver(const Letter& letter, int node, World& world);
  void DeliverContribution(const Letter& letter, World& world);
  void DeliverPlan(int plan, int node, World& world);
  void DeliverToTrainer(const Letter& letter, World& world);
  void Open(MemberChange change, World& world);
  void Decide(std::uint64_t next_step, World& world);
  void Say(int node, World& world);
  void MakeSteps(int node, World& world);
  void Answer(int node, const std::vector<SyncSteps::Answer>& answers, World& world);
  void Acknowledge(int node, const Letter& contribution, std::uint32_t units, World& world);
  void Tell(const Letter& contribution, const absl::Status& status, World& world);
  void Persist(int node, World& world);
  void Crash(int node, World& world);
  void Restart(int rank, World& world);
  void Freeze(int unit, World& world);
  void HandOver(int unit, World& world);
  void Put(std::uint32_t message, World& world);

  std::optional<std::string> UnitViolation(const World& world, int unit) const;
  std::string Words(const Letter& letter) const;

  const StepsConfig config_;
  std::vector<StepPlan> plans_;
};

std::string Encode(const StepsWorld& world);
std::string EncodeWithoutMessages(const StepsWorld& world);
std::vector<std::uint32_t> MessagesOf(const StepsWorld& world);

}  // namespace embla::model
