// Everything that can happen in a world of synchronous steps.
#include <algorithm>

#include "tests/model/steps_world.h"

namespace embla::model {
namespace {

using State = StepsTrainer::State;

}  // namespace

std::uint32_t StepsModel::RoutedTo(const StepsTrainer& trainer, int node, int ahead) const {
  std::uint32_t units = 0;
  if (ahead > config_.ahead || trainer.step + ahead >= config_.steps) return 0;
  for (int u = 0; u < config_.units; ++u) {
    if (trainer.route[u] == node && (trainer.acked[ahead] >> u & 1) == 0) units |= 1u << u;
  }
  return units;
}

bool StepsModel::MayOpen(const World& world, std::uint32_t ranks) const {
  if (plan(world).open.has_value()) return false;
  bool are_dead = true;
  for (int r = 0; r < config_.ranks; ++r) {
    const bool is_named = (ranks >> r & 1) != 0;
    const Rank rank{static_cast<std::uint32_t>(r)};
    const auto& members = plan(world).members;
    const bool is_member = std::any_of(members.begin(), members.end(),
                                       [&](const auto& entry) { return entry.Awaits(rank); });
    if (is_named && !is_member) return false;
    if (is_named && world.trainers[r].state != State::kDead) are_dead = false;
  }
  return are_dead || world.timeouts > 0;
}

void StepsModel::AddTrainerSteps(const World& world, std::vector<Step>& steps) const {
  for (int r = 0; r < config_.ranks; ++r) {
    const StepsTrainer& trainer = world.trainers[r];
    if (trainer.state == State::kRuns) {
      for (int n = 0; n < 2 * config_.nodes; ++n) {
        if (RoutedTo(trainer, n / 2, n % 2) != 0) {
          steps.push_back({Kind::kSend, r, static_cast<std::uint32_t>(n)});
        }
      }
      if (world.deaths > 0) steps.push_back({Kind::kDie, r, 0});
    }
    if (world.restarts > 0 && trainer.life + 1 < kStepLivesMax && trainer.state == State::kRuns) {
      steps.push_back({Kind::kRestart, r, 0});
    }
    if (trainer.state == State::kAbsent && !plan(world).open.has_value()) {
      steps.push_back({Kind::kJoin, r, 0});
    }
  }
}

void StepsModel::AddUnitSteps(const World& world, std::vector<Step>& steps) const {
  for (int u = 0; u < config_.units; ++u) {
    const StepsUnit& unit = world.units[u];
    if (!unit.cut.has_value() && world.moves > 0) steps.push_back({Kind::kFreeze, u, 0});
    if (!unit.cut.has_value()) continue;
    steps.push_back({Kind::kUnfreeze, u, 0});
    steps.push_back({Kind::kHandOver, u, 0});
  }
}

void StepsModel::AddNodeSteps(const World& world, std::vector<Step>& steps) const {
  for (int n = 0; n < config_.nodes; ++n) {
    const StepsNode& node = world.nodes[n];
    const bool is_synced =
        node.live == node.synced && node.content == node.synced_content && node.unsent.empty();
    if (config_.has_late_syncs && !is_synced) steps.push_back({Kind::kSync, n, 0});
    if (world.crashes > 0) steps.push_back({Kind::kCrash, n, 0});
    const auto lack = node.live.Lacking();
    if (!lack.has_value()) continue;
    std::uint32_t ranks = 0;
    for (const Rank rank : lack->ranks) ranks |= 1u << ToInt(rank);
    if (MayOpen(world, ranks)) steps.push_back({Kind::kReport, n, 0});
  }
  for (const std::uint32_t next : Answered(world)) steps.push_back({Kind::kDecide, 0, next});
  if (config_.is_lossy) steps.push_back({Kind::kRepeat, 0, 0});
  if (config_.is_lossy && !world.messages.empty()) steps.push_back({Kind::kLoseMessages, 0, 0});
}

void StepsModel::AddDeliveries(const World& world, std::vector<Step>& steps) const {
  for (const std::uint32_t message : world.messages) {
    const Letter letter = Letter::Unpack(message);
    switch (letter.kind) {
      case Letter::Kind::kPlan:
        for (int n = 0; n < config_.nodes; ++n) steps.push_back({Kind::kDeliver, n, message});
        break;
      case Letter::Kind::kLacks:
        if (MayOpen(world, letter.set)) steps.push_back({Kind::kDeliver, 0, message});
        break;
      case Letter::Kind::kSaid:
        break;
      case Letter::Kind::kContribution:
      case Letter::Kind::kAck:
      case Letter::Kind::kMoved:
        steps.push_back({Kind::kDeliver, letter.node, message});
        break;
    }
  }
}

// The coordinator may take this as the first step that no node has made, when all have answered: of
// each node, any answer.
std::vector<std::uint32_t> StepsModel::Answered(const World& world) const {
  if (!plan(world).open.has_value()) return {};
  std::vector<std::uint32_t> answers;
  std::vector<std::uint32_t> least(world.nodes.size(), UINT32_MAX);
  for (const std::uint32_t message : world.messages) {
    const Letter letter = Letter::Unpack(message);
    if (letter.kind != Letter::Kind::kSaid) continue;
    if (static_cast<std::uint64_t>(letter.plan) != plan(world).open->number) continue;
    const auto step = static_cast<std::uint32_t>(letter.step);
    least[letter.node] = std::min(least[letter.node], step);
    answers.push_back(step);
  }
  if (!config_.guards.all_nodes_answer) std::erase(least, UINT32_MAX);
  if (answers.empty() || least.empty()) return {};
  const std::uint32_t largest = *std::max_element(least.begin(), least.end());
  if (largest == UINT32_MAX) return {};
  if (!config_.guards.first_behind_steps) return {0};
  std::erase_if(answers, [&](std::uint32_t step) { return step < largest; });
  std::sort(answers.begin(), answers.end());
  answers.erase(std::unique(answers.begin(), answers.end()), answers.end());
  return answers;
}

std::vector<StepsStep> StepsModel::EnabledSteps(const World& world) const {
  std::vector<Step> steps;
  AddDeliveries(world, steps);
  AddTrainerSteps(world, steps);
  AddUnitSteps(world, steps);
  AddNodeSteps(world, steps);
  return steps;
}

}  // namespace embla::model
