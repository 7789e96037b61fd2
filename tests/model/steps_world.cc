#include "tests/model/steps_world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace embla::model {
namespace {

using State = StepsTrainer::State;

SessionId SessionOf(int rank, int life) {
  return SessionId{static_cast<std::uint64_t>(rank * kStepLivesMax + life + 1)};
}
int LifeOf(SessionId session) { return static_cast<int>((ToInt(session) - 1) % kStepLivesMax); }

UnitSet SetOf(std::uint32_t mask) {
  UnitSet units;
  for (int u = 0; u < kStepUnitsMax; ++u) {
    if ((mask >> u & 1) != 0) units.Include(StepsUnitOf(u));
  }
  return units;
}
std::uint32_t MaskOf(const UnitSet& units) {
  std::uint32_t mask = 0;
  for (int u = 0; u < kStepUnitsMax; ++u) {
    if (units.Meets(StepsUnitOf(u))) mask |= 1u << u;
  }
  return mask;
}
std::vector<Rank> RanksOf(std::uint32_t mask) {
  std::vector<Rank> ranks;
  for (std::uint32_t r = 0; r < kStepRanksMax; ++r) {
    if ((mask >> r & 1) != 0) ranks.push_back(Rank{r});
  }
  return ranks;
}

// Left of it when the process dies.
SyncSteps WithoutWaiting(SyncSteps steps) {
  while (!steps.waiting().empty()) steps.Drop(steps.waiting().front().contribution.session);
  return steps;
}

}  // namespace

std::uint32_t StepsModel::Letter::Pack() const {
  std::uint32_t packed = static_cast<std::uint32_t>(kind);
  const auto put = [&packed](std::uint32_t value, int bits) { packed = packed << bits | value; };
  put(static_cast<std::uint32_t>(node), 2);
  put(static_cast<std::uint32_t>(rank), 2);
  put(static_cast<std::uint32_t>(life), 1);
  put(static_cast<std::uint32_t>(step), 3);
  put(set, 3);
  put(resumes ? 1 : 0, 1);
  put(static_cast<std::uint32_t>(plan), 12);
  return packed;
}

StepsModel::Letter StepsModel::Letter::Unpack(std::uint32_t packed) {
  const auto take = [&packed](int bits) {
    const std::uint32_t value = packed & ((1u << bits) - 1);
    packed >>= bits;
    return value;
  };
  Letter letter;
  letter.plan = static_cast<int>(take(12));
  letter.resumes = take(1) != 0;
  letter.set = take(3);
  letter.step = static_cast<int>(take(3));
  letter.life = static_cast<int>(take(1));
  letter.rank = static_cast<int>(take(2));
  letter.node = static_cast<int>(take(2));
  letter.kind = static_cast<Kind>(packed);
  return letter;
}

int StepsModel::Keep(const StepPlan& plan) {
  const auto it = std::find(plans_.begin(), plans_.end(), plan);
  if (it != plans_.end()) return static_cast<int>(it - plans_.begin());
  plans_.push_back(plan);
  return static_cast<int>(plans_.size()) - 1;
}

StepsWorld StepsModel::Initial() {
  World world;
  StepPlan plan{.version = PlanVersion{1}, .members = {{.first_step = 0}}};
  for (int r = 0; r < config_.ranks; ++r) {
    const bool joins = config_.joins && r == config_.ranks - 1;
    StepsTrainer& trainer = world.trainers.emplace_back();
    if (joins) trainer.state = State::kAbsent;
    if (!joins) plan.members[0].ranks.push_back(Rank{static_cast<std::uint32_t>(r)});
    for (int u = 0; u < config_.units; ++u) {
      trainer.route[u] = static_cast<std::uint8_t>(u % config_.nodes);
    }
  }
  world.plan = Keep(plan);
  Put(Letter{.kind = Letter::Kind::kPlan, .plan = world.plan}.Pack(), world);
  for (int n = 0; n < config_.nodes; ++n) {
    SyncSteps steps({}, config_.guards);
    steps.Follow(plan);
    for (int u = n; u < config_.units; u += config_.nodes) steps.Add(StepsUnitOf(u), 0);
    world.nodes.push_back({steps, {}, steps, {}, {}});
  }
  for (int u = 0; u < config_.units; ++u) {
    world.units.push_back({.owner = u % config_.nodes, .cut = {}, .cut_step = 0, .acked = 0});
  }
  world.moves = config_.moves;
  world.restarts = config_.restarts;
  world.deaths = config_.deaths;
  world.timeouts = config_.timeouts;
  world.crashes = config_.crashes;
  return world;
}

void StepsModel::Take(const Step& step, World& world) {
  switch (step.kind) {
    case Kind::kSend:
      Send(step.who, static_cast<int>(step.arg / 2), static_cast<int>(step.arg % 2), world);
      break;
    case Kind::kDeliver:
      Deliver(Letter::Unpack(step.arg), step.who, world);
      break;
    case Kind::kFreeze:
      Freeze(step.who, world);
      break;
    case Kind::kUnfreeze: {
      StepsUnit& unit = world.units[step.who];
      world.nodes[unit.owner].live.Unfreeze(StepsUnitOf(step.who));
      unit.cut.reset();
      Persist(unit.owner, world);
      MakeSteps(unit.owner, world);
      break;
    }
    case Kind::kHandOver:
      HandOver(step.who, world);
      break;
    case Kind::kSync:
      Persist(step.who, world);
      break;
    case Kind::kCrash:
      Crash(step.who, world);
      break;
    case Kind::kDie:
      --world.deaths;
      world.trainers[step.who].state = State::kDead;
      break;
    case Kind::kRestart:
      Restart(step.who, world);
      break;
    case Kind::kReport: {
      const auto lack = world.nodes[step.who].live.Lacking();
      Letter letter{.kind = Letter::Kind::kLacks, .step = static_cast<int>(lack->step)};
      for (const Rank rank : lack->ranks) letter.set |= 1u << ToInt(rank);
      Put(letter.Pack(), world);
      break;
    }
    case Kind::kJoin:
      Open({.kind = MemberChange::Kind::kJoin,
            .ranks = RanksOf(1u << static_cast<unsigned>(step.who))},
           world);
      break;
    case Kind::kDecide:
      Decide(step.arg, world);
      break;
    case Kind::kRepeat:
      Put(Letter{.kind = Letter::Kind::kPlan, .plan = world.plan}.Pack(), world);
      for (int n = 0; n < config_.nodes; ++n) Say(n, world);
      break;
    case Kind::kLoseMessages:
      world.messages.clear();
      break;
  }
  if (config_.has_late_syncs) return;
  for (int n = 0; n < config_.nodes; ++n) Persist(n, world);
}

void StepsModel::Put(std::uint32_t message, World& world) {
  const auto at = std::lower_bound(world.messages.begin(), world.messages.end(), message);
  if (at == world.messages.end() || *at != message) world.messages.insert(at, message);
}

void StepsModel::Send(int rank, int node, int ahead, World& world) {
  const StepsTrainer& trainer = world.trainers[rank];
  Put(Letter{.kind = Letter::Kind::kContribution,
             .node = node,
             .rank = rank,
             .life = trainer.life,
             .step = trainer.step + ahead,
             .set = RoutedTo(trainer, node, ahead),
             .resumes = trainer.step + ahead < trainer.resumes_until,
             .plan = trainer.state == State::kRuns && config_.joins ? world.plan : 0}
          .Pack(),
      world);
}

void StepsModel::Deliver(const Letter& letter, int node, World& world) {
  switch (letter.kind) {
    case Letter::Kind::kContribution:
      return DeliverContribution(letter, world);
    case Letter::Kind::kAck:
    case Letter::Kind::kMoved:
      return DeliverToTrainer(letter, world);
    case Letter::Kind::kPlan:
      return DeliverPlan(letter.plan, node, world);
    case Letter::Kind::kLacks: {
      bool are_dead = true;
      for (const Rank rank : RanksOf(letter.set)) {
        are_dead = are_dead && world.trainers[ToInt(rank)].state == State::kDead;
      }
      if (!are_dead) --world.timeouts;
      return Open({.kind = config_.fails ? MemberChange::Kind::kFail : MemberChange::Kind::kClose,
                   .step = static_cast<std::uint64_t>(letter.step),
                   .ranks = RanksOf(letter.set)},
                  world);
    }
    case Letter::Kind::kSaid:
      return;
  }
}

void StepsModel::DeliverContribution(const Letter& letter, World& world) {
  StepsNode& node = world.nodes[letter.node];
  const bool is_closed = letter.life < world.trainers[letter.rank].life;
  if (is_closed && config_.guards.closed_refused) return;
  const std::uint32_t ticket = letter.Pack();
  for (const SyncSteps::Waiting& waiting : node.live.waiting()) {
    if (waiting.ticket == ticket) return;
  }
  UnitSet applied;
  for (int u = 0; u < config_.units; ++u) {
    const bool has_it =
        (node.content[u].window & StepsBitOf(letter.rank, letter.life, letter.step)) != 0;
    if ((letter.set >> u & 1) != 0 && has_it) applied.Include(StepsUnitOf(u));
  }
  const Contribution contribution{.session = SessionOf(letter.rank, letter.life),
                                  .seq = UpdateSeq{static_cast<std::uint64_t>(letter.step) + 1},
                                  .step = static_cast<std::uint64_t>(letter.step),
                                  .rank = Rank{static_cast<std::uint32_t>(letter.rank)},
                                  .resumes = letter.resumes,
                                  .plan_version = plans_[letter.plan].version,
                                  .learning_rate = std::nullopt,
                                  .bytes = 1,
                                  .claim = SetOf(letter.set)};
  const auto offer = node.live.Decide(contribution, applied);
  if (!offer.ok()) return Tell(letter, offer.status(), world);
  if (const auto answer = node.live.Take(ticket, contribution, *offer)) {
    return Answer(letter.node, {*answer}, world);
  }
  if (!config_.guards.ack_waits_for_step) Acknowledge(letter.node, letter, letter.set, world);
  MakeSteps(letter.node, world);
}

// One record, then rows and windows.
void StepsModel::MakeSteps(int node, World& world) {
  StepsNode& at = world.nodes[node];
  while (const auto ready = at.live.Ready()) {
    const int step = static_cast<int>(ready->step);
    for (int u = 0; u < config_.units; ++u) {
      StepsContent& content = at.content[u];
      if (!ready->units.Meets(StepsUnitOf(u))) continue;
      if ((content.made >> step & 1) != 0) content.is_twice = true;
      content.made |= static_cast<std::uint8_t>(1u << step);
      for (const SyncSteps::Part& part : ready->parts) {
        if (!part.units.Meets(StepsUnitOf(u))) continue;
        const int rank = static_cast<int>(ToInt(part.rank));
        const std::uint32_t bit = StepsBitOf(rank, LifeOf(part.session), step);
        if ((content.counted & bit) != 0) content.is_twice = true;
        content.counted |= bit;
        if (config_.guards.windows_are_whole || HasRows(rank, u)) content.window |= bit;
      }
    }
    Answer(node, at.live.Commit(*ready), world);
  }
}

void StepsModel::Answer(int node, const std::vector<SyncSteps::Answer>& answers, World& world) {
  for (const SyncSteps::Answer& answer : answers) {
    const Letter contribution = Letter::Unpack(static_cast<std::uint32_t>(answer.ticket));
    if (!answer.status.ok()) {
      Tell(contribution, answer.status, world);
      continue;
    }
    std::uint32_t moved = MaskOf(answer.moved);
    for (int u = 0; u < config_.units && !config_.guards.moved_named_without_rows; ++u) {
      if (!HasRows(contribution.rank, u)) moved &= ~(1u << u);
    }
    const std::uint32_t refused = moved | MaskOf(answer.frozen) | MaskOf(answer.again);
    if (moved != 0) {
      Letter letter = contribution;
      letter.kind = Letter::Kind::kMoved;
      letter.set = moved;
      letter.resumes = false;
      letter.plan = 0;
      Put(letter.Pack(), world);
    }
    Acknowledge(node, contribution, contribution.set & ~refused, world);
  }
}

void StepsModel::Acknowledge(int node, const Letter& contribution, std::uint32_t units,
                             World& world) {
  if (units == 0) return;
  Letter letter = contribution;
  letter.kind = Letter::Kind::kAck;
  letter.node = 0;
  letter.set = units;
  letter.resumes = false;
  letter.plan = 0;
  if (config_.has_late_syncs && config_.guards.ack_waits_for_record) {
    std::vector<std::uint32_t>& unsent = world.nodes[node].unsent;
    const auto at = std::lower_bound(unsent.begin(), unsent.end(), letter.Pack());
    if (at == unsent.end() || *at != letter.Pack()) unsent.insert(at, letter.Pack());
    return;
  }
  for (int u = 0; u < config_.units; ++u) {
    if ((units >> u & 1) != 0) world.units[u].acked |= StepsRankBitOf(letter.rank, letter.step);
  }
  Put(letter.Pack(), world);
}

// A rank that was closed, or whose step has failed, learns it so; no other one may be told such a
// thing.
void StepsModel::Tell(const Letter& contribution, const absl::Status& status, World& world) {
  if (absl::IsUnavailable(status) || absl::IsResourceExhausted(status)) return;
  StepsTrainer& trainer = world.trainers[contribution.rank];
  if (!Awaits(trainer, contribution)) return;
  const Rank rank{static_cast<std::uint32_t>(contribution.rank)};
  const StepMembers* const members = plan(world).At(static_cast<std::uint64_t>(contribution.step));
  const bool is_member = members != nullptr && members->Awaits(rank);
  if (!is_member) {
    trainer.state = State::kClosed;
    trainer.acked = {};
    return;
  }
  world.broken = absl::StrCat("a member's contribution is refused: ", status.message());
}

bool StepsModel::Awaits(const StepsTrainer& trainer, const Letter& letter) const {
  return trainer.state == State::kRuns && trainer.life == letter.life &&
         trainer.step <= letter.step && letter.step <= trainer.step + config_.ahead;
}

void StepsModel::DeliverToTrainer(const Letter& letter, World& world) {
  StepsTrainer& trainer = world.trainers[letter.rank];
  if (!Awaits(trainer, letter)) return;
  if (letter.kind == Letter::Kind::kMoved) {
    for (int u = 0; u < config_.units; ++u) {
      if ((letter.set >> u & 1) == 0 || trainer.route[u] != letter.node) continue;
      trainer.route[u] = static_cast<std::uint8_t>((letter.node + 1) % config_.nodes);
    }
    return;
  }
  trainer.acked[letter.step - trainer.step] |= static_cast<std::uint8_t>(letter.set);
  while (trainer.acked[0] == (1u << config_.units) - 1) {
    trainer.acked = {trainer.acked[1], 0};
    if (++trainer.step == config_.steps) trainer.state = State::kDone;
  }
}

void StepsModel::DeliverPlan(int plan, int node, World& world) {
  Answer(node, world.nodes[node].live.Follow(plans_[plan]), world);
  if (config_.guards.plan_persisted) Persist(node, world);
  Say(node, world);
  MakeSteps(node, world);
}

void StepsModel::Say(int node, World& world) {
  const StepsNode& at = world.nodes[node];
  if (!at.live.plan().open.has_value()) return;
  std::uint64_t next = at.live.first_unmade();
  if (!config_.guards.answers_outlive_units) {
    next = at.live.units_by_step().empty() ? 0 : at.live.units_by_step().rbegin()->first;
  }
  Put(Letter{.kind = Letter::Kind::kSaid,
             .node = node,
             .step = static_cast<int>(next),
             .plan = static_cast<int>(at.live.plan().open->number)}
          .Pack(),
      world);
}

void StepsModel::Open(MemberChange change, World& world) {
  const PlanVersion next{ToInt(plan(world).version) + 1};
  const auto opened = Opened(plan(world), std::move(change), next);
  if (!opened.ok()) return;
  world.plan = Keep(*opened);
  Put(Letter{.kind = Letter::Kind::kPlan, .plan = world.plan}.Pack(), world);
}

void StepsModel::Decide(std::uint64_t next_step, World& world) {
  const StepPlan before = plan(world);
  world.plan = Keep(Decided(before, next_step, PlanVersion{ToInt(before.version) + 1}));
  Put(Letter{.kind = Letter::Kind::kPlan, .plan = world.plan}.Pack(), world);
  if (before.open->kind != MemberChange::Kind::kJoin) return;
  for (const Rank rank : before.open->ranks) {
    StepsTrainer& trainer = world.trainers[ToInt(rank)];
    trainer.step = static_cast<int>(plan(world).members.back().first_step);
    trainer.state = trainer.step < config_.steps ? State::kRuns : State::kDone;
  }
}

void StepsModel::Persist(int node, World& world) {
  StepsNode& at = world.nodes[node];
  at.synced = WithoutWaiting(at.live);
  at.synced_content = at.content;
  for (const std::uint32_t message : std::exchange(at.unsent, {})) {
    const Letter letter = Letter::Unpack(message);
    for (int u = 0; u < config_.units; ++u) {
      if ((letter.set >> u & 1) == 0) continue;
      world.units[u].acked |= StepsRankBitOf(letter.rank, letter.step);
    }
    Put(message, world);
  }
}

void StepsModel::Crash(int node, World& world) {
  --world.crashes;
  StepsNode& at = world.nodes[node];
  at.live = at.synced;
  at.content = at.synced_content;
  at.unsent.clear();
}

// All nodes refuse the session before, then the next one begins.
void StepsModel::Restart(int rank, World& world) {
  --world.restarts;
  StepsTrainer& trainer = world.trainers[rank];
  for (StepsNode& node : world.nodes) {
    if (config_.guards.closed_dropped) node.live.Drop(SessionOf(rank, trainer.life));
  }
  ++trainer.life;
  trainer.resumes_until = trainer.step + 1 + config_.ahead;
  trainer.acked = {};
}

void StepsModel::Freeze(int unit, World& world) {
  --world.moves;
  StepsUnit& at = world.units[unit];
  Answer(at.owner, world.nodes[at.owner].live.Freeze(StepsUnitOf(unit)), world);
  Persist(at.owner, world);
  at.cut = world.nodes[at.owner].content[unit];
  at.cut_step = NextStepOf(world.nodes[at.owner].live, unit);
}

void StepsModel::HandOver(int unit, World& world) {
  StepsUnit& at = world.units[unit];
  StepsNode& source = world.nodes[at.owner];
  source.live.Remove(StepsUnitOf(unit));
  source.content[unit] = {};
  Persist(at.owner, world);
  at.owner = (at.owner + 1) % config_.nodes;
  StepsNode& target = world.nodes[at.owner];
  target.content[unit] = *at.cut;
  if (!config_.guards.windows_travel) target.content[unit].window = 0;
  const std::uint64_t step = config_.guards.step_travels ? static_cast<std::uint64_t>(at.cut_step)
                                                         : target.live.first_unmade();
  target.live.Add(StepsUnitOf(unit), step);
  at.cut.reset();
  Persist(at.owner, world);
}

}  // namespace embla::model
