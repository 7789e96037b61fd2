// True of every world of synchronous steps, or it is wrong; and words for traces.
#include <bit>

#include "absl/strings/str_cat.h"
#include "tests/model/steps_world.h"

namespace embla::model {
namespace {

using State = StepsTrainer::State;

int TimesCounted(const StepsContent& content, int rank, int step) {
  return std::popcount(content.counted & (StepsBitOf(rank, 0, step) | StepsBitOf(rank, 1, step)));
}

}  // namespace

UnitSet StepsUnitOf(int unit) {
  const auto granule = static_cast<std::uint32_t>(unit);
  return UnitSet({.column_granule = 0, .begin = granule, .end = granule + 1});
}

int NextStepOf(const SyncSteps& steps, int unit) {
  for (const auto& [step, units] : steps.units_by_step()) {
    if (units.Meets(StepsUnitOf(unit))) return static_cast<int>(step);
  }
  return -1;
}

std::optional<std::string> StepsModel::UnitViolation(const World& world, int unit) const {
  const StepsUnit& at = world.units[unit];
  const StepsContent& content = world.nodes[at.owner].content[unit];
  if (content.is_twice) return absl::StrCat("unit ", unit, " has made a step twice");
  const int next = NextStepOf(world.nodes[at.owner].live, unit);
  for (int s = 0; s < config_.steps; ++s) {
    const StepMembers* const members = plan(world).At(static_cast<std::uint64_t>(s));
    const bool is_made = (content.made >> s & 1) != 0;
    if (is_made && (members == nullptr || members->fails())) {
      return absl::StrCat("step ", s, " was made and has failed");
    }
    for (int r = 0; r < config_.ranks; ++r) {
      const int times = TimesCounted(content, r, s);
      if ((at.acked & StepsRankBitOf(r, s)) != 0 && times == 0) {
        return absl::StrCat("rank ", r, "'s contribution to step ", s, " of unit ", unit,
                            " was acknowledged and is lost");
      }
      if (times > 1) return absl::StrCat("rank ", r, " counts twice in step ", s);
      const Rank rank{static_cast<std::uint32_t>(r)};
      if (is_made && members->Awaits(rank) && times == 0) {
        return absl::StrCat("step ", s, " of unit ", unit, " lacks rank ", r);
      }
      if (is_made && times == 1 && !members->Has(rank)) {
        return absl::StrCat("step ", s, " of unit ", unit, " has rank ", r,
                            ", which is no member of it");
      }
    }
    const bool is_due = s < next && members != nullptr && !members->fails();
    if (is_due && !is_made) return absl::StrCat("unit ", unit, " has not made step ", s);
  }
  return std::nullopt;
}

std::optional<std::string> StepsModel::Violation(const World& world) const {
  if (!world.broken.empty()) return world.broken;
  for (int u = 0; u < config_.units; ++u) {
    if (auto why = UnitViolation(world, u)) return why;
  }
  return std::nullopt;
}

bool StepsModel::IsGoal(const World& world) const {
  if (plan(world).open.has_value()) return false;
  bool is_done = false;
  for (const StepsTrainer& trainer : world.trainers) {
    if (trainer.state == State::kRuns) return false;
    is_done = is_done || trainer.state == State::kDone;
  }
  for (int u = 0; u < config_.units; ++u) {
    if (world.units[u].cut.has_value()) return false;
    const int next = NextStepOf(world.nodes[world.units[u].owner].live, u);
    if (is_done && next < config_.steps) return false;
  }
  return true;
}

std::string StepsModel::Words(const Letter& letter) const {
  const auto set = [&] {
    std::string words;
    for (std::uint32_t i = 0; i < 3; ++i) {
      if ((letter.set >> i & 1) != 0) absl::StrAppend(&words, words.empty() ? "" : "+", i);
    }
    return words;
  };
  const std::string who = absl::StrCat("rank ", letter.rank, letter.life > 0 ? "'" : "");
  switch (letter.kind) {
    case Letter::Kind::kContribution:
      return absl::StrCat("contribution of ", who, " to step ", letter.step, " for units ", set(),
                          letter.resumes ? ", resuming" : "");
    case Letter::Kind::kAck:
      return absl::StrCat(who, " hears: step ", letter.step, " of units ", set(), " is made");
    case Letter::Kind::kMoved:
      return absl::StrCat(who, " hears: units ", set(), " have left node ", letter.node);
    case Letter::Kind::kPlan:
      return absl::StrCat("plan ", ToInt(plans_[letter.plan].version),
                          plans_[letter.plan].open.has_value() ? " with an open change" : "");
    case Letter::Kind::kSaid:
      return absl::StrCat("node ", letter.node, " says that step ", letter.step, " is next");
    case Letter::Kind::kLacks:
      return absl::StrCat("the report that step ", letter.step, " lacks ranks ", set());
  }
  return "";
}

std::string StepsModel::Describe(const Step& step) const {
  switch (step.kind) {
    case Kind::kSend:
      return absl::StrCat("rank ", step.who, " sends to node ", step.arg);
    case Kind::kDeliver:
      return absl::StrCat("node ", step.who,
                          " or the addressee gets: ", Words(Letter::Unpack(step.arg)));
    case Kind::kFreeze:
      return absl::StrCat("unit ", step.who, " is frozen");
    case Kind::kUnfreeze:
      return absl::StrCat("unit ", step.who, " is unfrozen");
    case Kind::kHandOver:
      return absl::StrCat("unit ", step.who, " is handed over");
    case Kind::kSync:
      return absl::StrCat("node ", step.who, " syncs its log");
    case Kind::kCrash:
      return absl::StrCat("node ", step.who, " dies and starts again");
    case Kind::kDie:
      return absl::StrCat("rank ", step.who, "'s trainer dies");
    case Kind::kRestart:
      return absl::StrCat("rank ", step.who, "'s trainer is started again");
    case Kind::kReport:
      return absl::StrCat("node ", step.who, " reports silent ranks");
    case Kind::kJoin:
      return absl::StrCat("rank ", step.who, " asks to join");
    case Kind::kDecide:
      return "the coordinator decides the change";
    case Kind::kRepeat:
      return "coordinator and nodes say again what they said";
    case Kind::kLoseMessages:
      return "all messages are lost";
  }
  return "";
}

}  // namespace embla::model
