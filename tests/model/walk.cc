#include "tests/model/walk.h"

#include <random>
#include <utility>
#include <vector>

namespace embla::model {
namespace {

// How often a kind of step is taken, where it is possible.
int WeightOf(StepKind kind, bool has_faults) {
  switch (kind) {
    case StepKind::kDeliver:
      return 60;
    case StepKind::kUpdate:
    case StepKind::kWritten:
    case StepKind::kReserved:
    case StepKind::kCoordinatorTick:
    case StepKind::kNodeTick:
    case StepKind::kSync:
      return 6;
    case StepKind::kStart:
      return has_faults ? 4 : 0;
    default:
      return has_faults ? 1 : 0;
  }
}

class Walker {
 public:
  Walker(const ModelConfig& config, std::uint64_t seed)
      : model_(config), random_(seed), world_(model_.Initial()) {}

  WalkResult Run(int steps) {
    for (int i = 0; i < steps && !Fails(); ++i) TakeOne(/*has_faults=*/true);
    constexpr int kRestMax = 100'000;
    int left = kRestMax;
    while (!Fails() && !model_.IsGoal(world_) && --left > 0) TakeOne(/*has_faults=*/false);
    if (left == 0) result_.counterexample = {"no rest without faults", std::move(trace_)};
    return std::move(result_);
  }

 private:
  bool Fails() {
    if (result_.counterexample.has_value()) return true;
    if (auto why = model_.Violation(world_)) {
      result_.counterexample = {*std::move(why), std::move(trace_)};
    }
    return result_.counterexample.has_value();
  }

  void TakeOne(bool has_faults) {
    std::vector<Step> by_kind[static_cast<int>(StepKind::kLoseMessages) + 1];
    for (const Step& step : model_.EnabledSteps(world_)) {
      by_kind[static_cast<int>(step.kind)].push_back(step);
    }
    int total = 0;
    for (const auto& steps : by_kind) total += Weight(steps, has_faults);
    int at = static_cast<int>(random_() % total);
    for (const auto& steps : by_kind) {
      at -= Weight(steps, has_faults);
      if (at >= 0) continue;
      const Step step = steps[random_() % steps.size()];
      Count(step);
      trace_.push_back(model_.Describe(step));
      model_.Take(step, world_);
      return CountRecords();
    }
  }

  static int Weight(const std::vector<Step>& steps, bool has_faults) {
    return steps.empty() ? 0 : WeightOf(steps[0].kind, has_faults);
  }

  void Count(const Step& step) {
    const bool is_death = step.kind == StepKind::kCrash ||
                          step.kind == StepKind::kCrashLosingStaged ||
                          step.kind == StepKind::kCrashLosingTail;
    if (!is_death) return;
    for (const UnitWorld& unit : world_) {
      const UnitState& state = unit.nodes[step.node].state;
      if (IsFrozen(state)) ++result_.crashes_while_frozen;
      if (state.is_releasing) ++result_.crashes_while_releasing;
    }
  }

  void CountRecords() {
    last_.resize(world_.size());
    for (std::size_t u = 0; u < world_.size(); ++u) {
      const UnitRecord& record = world_[u].record;
      if (record == last_[u]) continue;
      if (record.phase == MovePhase::kNone) ++result_.commits;
      if (record.phase == MovePhase::kAborted) ++result_.aborts;
      last_[u] = record;
    }
  }

  Model model_;
  std::mt19937_64 random_;
  World world_;
  std::vector<UnitRecord> last_;
  std::vector<std::string> trace_;
  WalkResult result_;
};

}  // namespace

WalkResult Walk(const ModelConfig& config, std::uint64_t seed, int steps) {
  return Walker(config, seed).Run(steps);
}

}  // namespace embla::model
