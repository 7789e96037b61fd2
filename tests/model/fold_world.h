// The world in which the model checker explores how records of updates become one: a trainer, two
// nodes and a network around RecordFold and UnitWindows. A value; every step is deterministic.
//
// A table has two units with rows that an update may change. `kRest` has never moved and lies on
// node 1; `kUnit` begins on node 0 and moves to and fro, each time by a new plan. On node 1 the
// unit has a record of its own, or goes by the rest's. How rows travel is the other model's
// (world.h): here a unit freezes, and then is elsewhere or thaws. A coordinator's messages to a
// node arrive in order: the plans before a move, that the unit has come, the plan that says so.
//
// The network never takes a request out: that covers delay, reordering and repetition. Answers
// arrive at once or never. The trainer routes each request by the plan it has then, sends what is
// not acknowledged again whenever it likes, and keeps rows together that were in one request for as
// long as its plan has them on one node: no more than docs/protocol.md asks.
//
// With hints, the trainer may ask the node that it would send the unit's rows to where the unit is,
// and go by the answer until it learns the next plan. The answer may be late; and so may the news
// that a unit has come to node 1, which the trainer's plan says by then. A third node, which once
// had the unit and gave it to node 0, may know no more of it than that, however new its plan is: it
// died, and has read that in its log. It is not asked, and so does not tell.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/migration/record_fold.h"
#include "server/migration/unit_windows.h"

namespace embla::model {

inline constexpr int kFoldUpdatesMax = 3;
inline constexpr std::uint8_t kRest = 1;  // Bits of a set of units.
inline constexpr std::uint8_t kUnit = 2;

struct FoldConfig {
  std::vector<std::uint8_t> updates = {kRest | kUnit, kRest | kUnit};  // By seq - 1: their rows.
  int freezes = 1;
  int folds = 1;    // Begun.
  int crashes = 0;  // Crashes of node 1. Its log has everything: a lost tail is an earlier world.
  bool names_plans = true;  // Else the trainer's requests do not say since when they are routed.
  int hints = 0;            // Questions of the trainer where the unit is.
  bool leaves_out = false;  // The unit may leave its rows out at rest, too: too many in flight.
  FoldGuards guards = {};
};

struct FoldUpdate {
  std::uint8_t acked = 0;
  std::uint8_t since = 0;  // The plan of its first request; 0: not sent.
  bool is_split = false;   // Its rows go in two requests.
};

struct FoldWorld {
  // The trainer.
  std::array<FoldUpdate, kFoldUpdatesMax> updates;
  std::uint8_t known_plan = 1;
  // 1 + the node that has the unit, by a hint that the trainer goes by; 0: none.
  std::uint8_t hint = 0;
  std::uint8_t hints_since = 0;  // The oldest plan of a node that gave a hint; 0: none did.
  std::uint8_t answer = 0;       // Likewise 1 + the node, of an answer that has not come yet,
  std::uint8_t answer_plan = 0;  // and the plan of the node that gives it.

  // The unit. Plan p has it on node (places >> p & 1).
  std::uint8_t plan = 1;
  std::uint32_t places = 0;
  bool is_frozen = false;
  bool is_coming = false;  // To node 1, which has not heard of it.
  UnitWindows unit_record;
  std::array<std::uint8_t, kFoldUpdatesMax> in_unit = {};  // How often each update was applied.

  // Node 1.
  std::uint8_t heard = 1;      // The newest plan that its coordinator has sent it; 0: none yet.
  std::uint8_t installed = 1;  // The plan that it goes by,
  bool is_confirmed = true;    // and that this process was sent.
  std::uint8_t arrived = 0;    // The plan that it had heard of when the unit arrived.
  bool was_here = false;       // True: it knows the unit.
  UnitWindows rest_record;
  std::array<std::uint8_t, kFoldUpdatesMax> in_rest = {};
  RecordFold fold;
  bool is_folded = false;
  std::uint64_t first_incomplete = 1;  // The highest one heard of.
  // The log's word on the unit's record, where the log lacks that it is no more.
  std::optional<UnitWindows> unlogged;

  int freezes = 0;
  int folds = 0;
  int crashes = 0;
  int hints = 0;
  std::vector<std::uint32_t> messages;  // Ascending.
};

enum class FoldStepKind : std::uint8_t {
  kSend,
  kDeliver,      // Delivers the request, and the answer.
  kDeliverLost,  // Delivers the request; the answer is lost.
  kDeliverPart,  // The unit's rows are left out.
  kLearnPlan,
  kAsk,
  kTell,
  kTakeHint,
  kArrive,
  kFreeze,
  kThaw,
  kMove,
  kHearPlan,
  kInstallPlan,
  kBegin,
  kNote,
  kLook,
  kJoin,
  kTakeApart,
  kCrash,
};

struct FoldStep {
  FoldStepKind kind{};
  std::uint32_t arg = 0;  // Update and rows, or message.
};

class FoldModel {
 public:
  using Config = FoldConfig;
  using World = FoldWorld;
  using Step = FoldStep;

  explicit FoldModel(const FoldConfig& config) : config_(config) {}

  World Initial() const;
  std::vector<Step> EnabledSteps(const World& world) const;
  void Take(const Step& step, World& world) const;
  std::string Describe(const Step& step) const;

  std::optional<std::string> Violation(const World& world) const;
  // Everything is acknowledged.
  bool IsGoal(const World& world) const;

 private:
  // A request, in one number.
  struct Request {
    int update = 0;
    std::uint8_t rows = 0;
    int node = 0;
    std::uint8_t since = 0;
    std::uint64_t first_incomplete = 0;

    std::uint32_t Pack() const;
    static Request Unpack(std::uint32_t packed);
  };

  static int PlaceOf(const World& world, std::uint8_t plan) { return world.places >> plan & 1; }
  bool MayBegin(const World& world) const;
  static int OwnerOf(const World& world) { return PlaceOf(world, world.plan); }
  // Whether `node` has the unit, as far as it knows.
  static bool Has(int node, const World& world) {
    return OwnerOf(world) == node && !world.is_coming;
  }
  // The node that the trainer sends the unit's rows to, and the plan that it says it goes by.
  static int RouteOf(const World& world) {
    return world.hint != 0 ? world.hint - 1 : PlaceOf(world, world.known_plan);
  }
  std::uint8_t RoutedSince(const World& world) const;
  bool IsAtRest(const World& world) const { return Has(1, world) && !world.is_frozen; }
  std::uint64_t FirstIncomplete(const World& world) const;

  void Send(int update, std::uint8_t rows, World& world) const;
  void Ask(World& world) const;
  void Tell(World& world) const;
  void TakeHint(World& world) const;
  void Arrive(World& world) const;
  // The rows that the answer acknowledges.
  std::uint8_t DecideUnit(const Request& request, bool leaves_out, World& world) const;
  std::uint8_t DecideOnNodeOfRest(const Request& request, bool leaves_out, World& world) const;
  void MoveUnit(World& world) const;
  bool Apply(const Request& request, UnitWindows& record) const;
  void Deliver(FoldStepKind kind, const Request& request, World& world) const;
  void TakeApart(World& world) const;
  void Unrest(World& world) const;
  void Join(World& world) const;
  void Crash(World& world) const;

  const FoldConfig config_;
};

std::string Encode(const FoldWorld& world);
std::string EncodeWithoutMessages(const FoldWorld& world);
std::vector<std::uint32_t> MessagesOf(const FoldWorld& world);

}  // namespace embla::model
