#include "tests/model/fold_world.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace embla::model {
namespace {

constexpr SessionId kSession{1};
constexpr UnitId kUnitId{TableId{1}, 1, 0};

UpdateSeq SeqOf(int update) { return UpdateSeq{static_cast<std::uint64_t>(update) + 1}; }

std::string RowsOf(std::uint8_t rows) {
  if (rows == kRest) return "the rest's rows";
  return rows == kUnit ? "the unit's rows" : "all rows";
}

}  // namespace

std::uint32_t FoldModel::Request::Pack() const {
  return static_cast<std::uint32_t>(update) | rows << 4u | static_cast<std::uint32_t>(node) << 8u |
         static_cast<std::uint32_t>(since) << 12u |
         static_cast<std::uint32_t>(first_incomplete) << 20u;
}

FoldModel::Request FoldModel::Request::Unpack(std::uint32_t packed) {
  return {.update = static_cast<int>(packed & 0xf),
          .rows = static_cast<std::uint8_t>(packed >> 4u & 0xf),
          .node = static_cast<int>(packed >> 8u & 0xf),
          .since = static_cast<std::uint8_t>(packed >> 12u & 0xff),
          .first_incomplete = packed >> 20u};
}

FoldWorld FoldModel::Initial() const {
  FoldWorld world;
  world.fold = RecordFold(config_.guards);
  world.freezes = config_.freezes;
  world.folds = config_.folds;
  world.crashes = config_.crashes;
  world.hints = config_.hints;
  return world;
}

std::uint8_t FoldModel::RoutedSince(const World& world) const {
  const bool is_older = config_.guards.hints_are_dated && world.hints_since != 0;
  return is_older ? std::min(world.known_plan, world.hints_since) : world.known_plan;
}

std::uint64_t FoldModel::FirstIncomplete(const World& world) const {
  std::uint64_t first = 1;
  for (std::size_t i = 0; i < config_.updates.size(); ++i) {
    if (world.updates[i].acked != config_.updates[i]) break;
    ++first;
  }
  return first;
}

std::vector<FoldStep> FoldModel::EnabledSteps(const World& world) const {
  using Kind = FoldStepKind;
  std::vector<FoldStep> steps;
  const auto add = [&](Kind kind, std::uint32_t arg = 0) { steps.push_back({kind, arg}); };
  for (std::uint32_t i = 0; i < config_.updates.size(); ++i) {
    const FoldUpdate& update = world.updates[i];
    if (i > 0 && world.updates[i - 1].since == 0) break;
    const std::uint8_t open = config_.updates[i] & ~update.acked;
    if (open == 0) continue;
    if (!update.is_split) add(Kind::kSend, i << 4u | open);
    if (update.is_split && (open & kRest) != 0) add(Kind::kSend, i << 4u | kRest);
    if (update.is_split && (open & kUnit) != 0) add(Kind::kSend, i << 4u | kUnit);
  }
  for (const std::uint32_t message : world.messages) {
    add(Kind::kDeliver, message);
    add(Kind::kDeliverLost, message);
    if (config_.leaves_out) add(Kind::kDeliverPart, message);
  }
  if (world.known_plan < world.plan) add(Kind::kLearnPlan);
  if (world.hints > 0 && !Has(RouteOf(world), world)) add(Kind::kAsk);
  if (world.hints > 0 && !config_.guards.hints_are_asked) add(Kind::kTell);
  if (world.answer != 0) add(Kind::kTakeHint);
  if (world.is_coming) add(Kind::kArrive);
  if (world.is_frozen) add(Kind::kThaw), add(Kind::kMove);
  if (!world.is_frozen && !world.is_coming && world.freezes > 0) add(Kind::kFreeze);
  // Node 1 hears that a unit has come before it hears of the plan that says so.
  if (world.heard + (world.is_coming ? 1 : 0) < world.plan) add(Kind::kHearPlan);
  if (world.installed < world.heard || (world.heard > 0 && !world.is_confirmed))
    add(Kind::kInstallPlan);
  const bool is_gated = IsAtRest(world) && !world.is_folded;
  if (is_gated && world.folds > 0 && MayBegin(world)) add(Kind::kBegin);
  if (is_gated && world.fold.is_waiting()) {
    const bool is_same = world.fold.plan() == PlanVersion{world.installed};
    if (is_same && !world.fold.MayJoin(kUnitId)) add(Kind::kNote);
    add(Kind::kLook);
    if (world.fold.MayJoin(kUnitId)) add(Kind::kJoin);
  }
  if (world.fold.asks_apart() && world.is_folded) add(Kind::kTakeApart);
  if (world.crashes > 0) add(Kind::kCrash);
  return steps;
}

bool FoldModel::MayBegin(const World& world) const {
  const FoldGuards& guards = config_.guards;
  return (world.is_confirmed || !guards.plan_was_sent) &&
         (PlaceOf(world, world.installed) == 1 || !guards.plan_has_unit) &&
         (world.installed > world.arrived || !guards.plan_after_arrival);
}

void FoldModel::Take(const Step& step, World& world) const {
  switch (step.kind) {
    case FoldStepKind::kSend:
      return Send(static_cast<int>(step.arg >> 4u), step.arg & 0xf, world);
    case FoldStepKind::kDeliver:
    case FoldStepKind::kDeliverLost:
    case FoldStepKind::kDeliverPart:
      return Deliver(step.kind, Request::Unpack(step.arg), world);
    case FoldStepKind::kLearnPlan:
      ++world.known_plan;
      world.hint = world.hints_since = world.answer = world.answer_plan = 0;
      return;
    case FoldStepKind::kAsk:
      return Ask(world);
    case FoldStepKind::kTell:
      return Tell(world);
    case FoldStepKind::kTakeHint:
      return TakeHint(world);
    case FoldStepKind::kArrive:
      return Arrive(world);
    case FoldStepKind::kFreeze:
      --world.freezes;
      if (world.is_folded) TakeApart(world);
      Unrest(world);
      world.is_frozen = true;
      return;
    case FoldStepKind::kThaw:
      world.is_frozen = false;
      return;
    case FoldStepKind::kMove:
      return MoveUnit(world);
    case FoldStepKind::kHearPlan:
      // A process that begins is sent the newest one; the plan of a commit may be on its way.
      world.heard = world.heard == 0 ? std::max(world.plan - 1, 1) : world.heard + 1;
      return;
    case FoldStepKind::kInstallPlan:
      // The one that it has anyway, if that is what the process was sent.
      world.installed = world.is_confirmed ? world.installed + 1 : world.heard;
      world.is_confirmed = true;
      return;
    case FoldStepKind::kBegin:
      --world.folds;
      return world.fold.Begin(PlanVersion{world.installed}, world.rest_record);
    case FoldStepKind::kNote:
      return world.fold.Note(kUnitId, world.unit_record);
    case FoldStepKind::kLook:
      return world.fold.Look(
          [&](SessionId, UpdateSeq seq) { return ToInt(seq) < world.first_incomplete; });
    case FoldStepKind::kJoin:
      return Join(world);
    case FoldStepKind::kTakeApart:
      return TakeApart(world);
    case FoldStepKind::kCrash:
      return Crash(world);
  }
}

void FoldModel::MoveUnit(World& world) const {
  const int to = 1 - OwnerOf(world);
  ++world.plan;
  world.places |= static_cast<std::uint32_t>(to) << world.plan;
  world.is_frozen = false;
  world.is_coming = to == 1;
  if (to == 0) Unrest(world);
  if (config_.hints == 0 && to == 1) Arrive(world);
}

void FoldModel::Arrive(World& world) const {
  world.is_coming = false;
  world.arrived = world.heard = std::max<std::uint8_t>(world.heard, world.plan - 1);
  world.was_here = true;
  Unrest(world);
}

// A node that does not have the unit names the other one, rightly or not.
void FoldModel::Ask(World& world) const {
  --world.hints;
  const int node = RouteOf(world);
  world.answer = static_cast<std::uint8_t>(1 + (1 - node));
  world.answer_plan = node == 1 ? world.installed : world.plan;
}

void FoldModel::Tell(World& world) const {
  --world.hints;
  world.answer = 1;
  world.answer_plan = world.plan;
}

void FoldModel::TakeHint(World& world) const {
  world.hint = world.answer;
  world.hints_since =
      world.hints_since == 0 ? world.answer_plan : std::min(world.hints_since, world.answer_plan);
  world.answer = world.answer_plan = 0;
}

void FoldModel::Send(int index, std::uint8_t rows, World& world) const {
  FoldUpdate& update = world.updates[index];
  const std::uint8_t since = RoutedSince(world);
  const bool is_first = update.since == 0 || !config_.guards.since_is_first;
  update.since = is_first ? since : std::min(update.since, since);
  if (rows == (kRest | kUnit) && RouteOf(world) == 0) update.is_split = true;
  const auto put = [&](std::uint8_t part) {
    const Request request{.update = index,
                          .rows = part,
                          .node = part == kUnit ? RouteOf(world) : 1,
                          .since = config_.names_plans ? update.since : std::uint8_t{0},
                          .first_incomplete = FirstIncomplete(world)};
    const std::uint32_t packed = request.Pack();
    const auto it = std::lower_bound(world.messages.begin(), world.messages.end(), packed);
    if (it == world.messages.end() || *it != packed) world.messages.insert(it, packed);
  };
  if (!update.is_split) return put(rows);
  if ((rows & kRest) != 0) put(kRest);
  if ((rows & kUnit) != 0) put(kUnit);
}

void FoldModel::Deliver(FoldStepKind kind, const Request& request, World& world) const {
  const bool leaves_out = kind == FoldStepKind::kDeliverPart;
  const std::uint8_t acked = request.node == 1 ? DecideOnNodeOfRest(request, leaves_out, world)
                                               : DecideUnit(request, leaves_out, world);
  if (kind == FoldStepKind::kDeliverLost) return;
  FoldUpdate& update = world.updates[request.update];
  update.acked |= acked;
  // Rows that were left out go alone from then on.
  if (acked != 0 && acked != request.rows) update.is_split = true;
}

bool FoldModel::Apply(const Request& request, UnitWindows& record) const {
  const UpdateSeq seq = SeqOf(request.update);
  const UpdateSeq first{request.first_incomplete};
  const bool is_new = record.Classify(kSession, seq, first) == UnitWindows::Verdict::kNew;
  if (is_new) record.Record(kSession, seq, first);
  return is_new;
}

// The unit's rows where it has a record of its own.
std::uint8_t FoldModel::DecideUnit(const Request& request, bool leaves_out, World& world) const {
  if (!Has(request.node, world)) return 0;
  UnitWindows tried = world.unit_record;
  if (!Apply(request, tried)) return kUnit;
  if (world.is_frozen || leaves_out) return 0;
  world.unit_record = std::move(tried);
  ++world.in_unit[request.update];
  return kUnit;
}

// UpdateTask does the same.
std::uint8_t FoldModel::DecideOnNodeOfRest(const Request& request, bool leaves_out,
                                           World& world) const {
  world.first_incomplete = std::max(world.first_incomplete, request.first_incomplete);
  const bool has_unit = (request.rows & kUnit) != 0;
  if (has_unit && !Has(1, world) && !world.was_here) return 0;
  const bool is_applied = world.rest_record.Classify(kSession, SeqOf(request.update),
                                                     UpdateSeq{request.first_incomplete}) ==
                          UnitWindows::Verdict::kApplied;
  // Where no unit has a record of its own, a repetition is one whenever it was routed.
  const bool is_repeated = world.is_folded && is_applied;
  if (!is_repeated && !world.fold.Admit(PlanVersion{request.since}, PlanVersion{world.installed}))
    return 0;
  std::uint8_t acked = 0;
  if (has_unit && !world.is_folded) {
    acked = DecideUnit(request, leaves_out, world);
    if (acked == 0 && config_.guards.left_out_cancels) world.fold.Cancel();
  }
  const std::uint8_t rest = world.is_folded ? request.rows : request.rows & kRest;
  if (rest == 0) return acked;
  if (Apply(request, world.rest_record)) {
    if ((rest & kRest) != 0) ++world.in_rest[request.update];
    if ((rest & kUnit) != 0) ++world.in_unit[request.update];
  }
  return acked | rest;
}

void FoldModel::Unrest(World& world) const {
  if (config_.guards.unrest_cancels) world.fold.Cancel();
}

void FoldModel::Join(World& world) const {
  world.fold.Join(kUnitId);
  world.is_folded = true;
  if (!config_.guards.fold_is_logged) world.unlogged = world.unit_record;
  if (config_.guards.records_join) world.rest_record.Include(world.unit_record);
  world.unit_record = UnitWindows();
}

void FoldModel::TakeApart(World& world) const {
  world.is_folded = false;
  world.unit_record = config_.guards.apart_with_record ? world.rest_record : UnitWindows();
  world.unlogged.reset();
  world.fold.TakenApart();
}

void FoldModel::Crash(World& world) const {
  --world.crashes;
  const PlanVersion folded = world.fold.folded();
  world.fold = RecordFold(config_.guards);
  world.first_incomplete = 1;
  world.heard = world.arrived = 0;
  world.is_confirmed = false;
  if (!world.is_folded) return;
  if (!world.unlogged.has_value()) return world.fold.Restore(folded);
  world.unit_record = *world.unlogged;
  world.unlogged.reset();
  world.is_folded = false;
}

std::optional<std::string> FoldModel::Violation(const World& world) const {
  for (std::size_t i = 0; i < config_.updates.size(); ++i) {
    for (const std::uint8_t rows : {kRest, kUnit}) {
      const int times = (rows == kRest ? world.in_rest : world.in_unit)[i];
      const std::string what = absl::StrCat("update ", i + 1, " of ", RowsOf(rows));
      if (times > 1) return absl::StrCat(what, " was applied twice");
      if ((world.updates[i].acked & rows) != 0 && times == 0) {
        return absl::StrCat(what, " was acknowledged and is lost");
      }
    }
  }
  return std::nullopt;
}

bool FoldModel::IsGoal(const World& world) const {
  return FirstIncomplete(world) > config_.updates.size();
}

std::string FoldModel::Describe(const Step& step) const {
  const Request request = Request::Unpack(step.arg);
  const std::string words = absl::StrCat(
      "update ", request.update + 1, ", ", RowsOf(request.rows), ", routed since plan ",
      request.since, ", to node ", request.node, ", first incomplete ", request.first_incomplete);
  switch (step.kind) {
    case FoldStepKind::kSend:
      return absl::StrCat("the trainer sends update ", (step.arg >> 4u) + 1, ", ",
                          RowsOf(step.arg & 0xf));
    case FoldStepKind::kDeliver:
      return absl::StrCat("arrives: ", words);
    case FoldStepKind::kDeliverLost:
      return absl::StrCat("arrives, and the answer is lost: ", words);
    case FoldStepKind::kDeliverPart:
      return absl::StrCat("arrives, and the unit's rows are left out: ", words);
    case FoldStepKind::kLearnPlan:
      return "the trainer learns the next plan";
    case FoldStepKind::kAsk:
      return "the trainer asks for the unit, and the node names the other one";
    case FoldStepKind::kTell:
      return "a third node that was asked for another unit names node 0";
    case FoldStepKind::kTakeHint:
      return "the trainer gets that answer, and goes by it";
    case FoldStepKind::kArrive:
      return "node 1 hears that the unit is its own";
    case FoldStepKind::kFreeze:
      return "the unit freezes";
    case FoldStepKind::kThaw:
      return "the unit thaws";
    case FoldStepKind::kMove:
      return "the unit moves, and there is a new plan";
    case FoldStepKind::kHearPlan:
      return "node 1 hears of a plan";
    case FoldStepKind::kInstallPlan:
      return "node 1 installs the next plan";
    case FoldStepKind::kBegin:
      return "a fold begins: the rest's record is noted";
    case FoldStepKind::kNote:
      return "the unit's record is noted";
    case FoldStepKind::kLook:
      return "the fold looks at what is over";
    case FoldStepKind::kJoin:
      return "the records become one";
    case FoldStepKind::kTakeApart:
      return "the unit is taken apart";
    case FoldStepKind::kCrash:
      return "node 1 dies and begins again";
  }
  return "";
}

namespace {

class FoldEncoder {
 public:
  void Put(std::uint64_t value) {
    while (value >= 0x80) {
      out_.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    out_.push_back(static_cast<char>(value));
  }
  void Put(const UnitWindows& windows) {
    Put(windows.sessions().size());
    for (const SessionWindow& window : windows.sessions()) {
      Put(ToInt(window.floor));
      for (const std::uint64_t word : window.words) Put(word);
    }
  }
  void Put(const RecordFold& fold) {
    Put(ToInt(fold.plan())), Put(ToInt(fold.folded())), Put(std::uint64_t{fold.asks_apart()});
    Put(std::uint64_t{fold.MayJoin(kUnitId)}), Put(std::uint64_t{fold.HasNoted(kUnitId)});
    Put(fold.noted().size());
    for (const auto& [session, seq] : fold.noted()) Put(ToInt(session)), Put(ToInt(seq));
  }
  void Put(const FoldWorld& world) {
    for (const FoldUpdate& update : world.updates) {
      Put(update.acked), Put(update.since), Put(std::uint64_t{update.is_split});
    }
    Put(world.known_plan), Put(world.plan), Put(world.places), Put(std::uint64_t{world.is_frozen});
    Put(world.unit_record), Put(world.rest_record), Put(world.heard);
    Put(world.installed), Put(std::uint64_t{world.is_confirmed}), Put(world.arrived);
    for (const std::uint8_t times : world.in_unit) Put(times);
    for (const std::uint8_t times : world.in_rest) Put(times);
    Put(std::uint64_t{world.was_here}), Put(std::uint64_t{world.is_folded}), Put(world.fold);
    Put(world.first_incomplete), Put(std::uint64_t{world.unlogged.has_value()});
    if (world.unlogged.has_value()) Put(*world.unlogged);
    for (const std::uint8_t value :
         {world.hint, world.hints_since, world.answer, world.answer_plan}) {
      Put(value);
    }
    Put(std::uint64_t{world.is_coming});
    for (const int left : {world.freezes, world.folds, world.crashes, world.hints}) {
      Put(static_cast<std::uint64_t>(left));
    }
  }
  std::string Take() && { return std::move(out_); }

 private:
  std::string out_;
};

}  // namespace

std::string EncodeWithoutMessages(const FoldWorld& world) {
  FoldEncoder encoder;
  encoder.Put(world);
  return std::move(encoder).Take();
}

std::string Encode(const FoldWorld& world) {
  FoldEncoder encoder;
  encoder.Put(world);
  for (const std::uint32_t message : world.messages) encoder.Put(message);
  return std::move(encoder).Take();
}

std::vector<std::uint32_t> MessagesOf(const FoldWorld& world) { return world.messages; }

}  // namespace embla::model
