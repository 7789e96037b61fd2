// Breadth-first search through every world that a configuration of a model can reach.
// Deterministic; a counterexample is a short one. Worlds are told apart by a 128-bit fingerprint:
// two of 10^7 share one with a chance below 10^-24.
//
// A model has types Config, World and Step, and Initial, EnabledSteps, Take, Describe, Violation
// and IsGoal; beside it stand Encode, EncodeWithoutMessages and MessagesOf of its worlds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace embla::model {

struct Counterexample {
  std::string why;
  std::vector<std::string> trace;  // Steps from the initial world.
};

struct SearchOptions {
  std::uint64_t states_max = 50'000'000;
  // From every world a goal can be reached. Needs every world; without it, a world is left out if
  // another one differs only by more messages: whatever can go wrong in the first, can in the
  // second.
  bool checks_progress = false;
};

struct SearchResult {
  std::uint64_t states = 0;
  std::uint64_t steps = 0;
  int depth = 0;
  bool is_complete = false;
  std::optional<Counterexample> counterexample;
};

std::string ToString(const SearchResult& result);

using Fingerprint = std::pair<std::uint64_t, std::uint64_t>;
Fingerprint FingerprintOf(const std::string& bytes);

template <typename Model>
class Searcher {
 public:
  using World = typename Model::World;
  using Step = typename Model::Step;

  Searcher(const typename Model::Config& config, const SearchOptions& options)
      : model_(config), options_(options) {}

  SearchResult Run() {
    World initial = model_.Initial();
    Add(initial, 0, 0);
    queue_.push_back({0, std::move(initial)});
    while (!queue_.empty() && !result_.counterexample.has_value()) {
      if (origins_.size() >= options_.states_max) break;
      const auto [at, world] = std::move(queue_.front());
      queue_.pop_front();
      if (!origins_[at].is_dominated) Expand(world, at);
    }
    result_.is_complete = queue_.empty() && !result_.counterexample.has_value();
    if (result_.is_complete && options_.checks_progress) CheckProgress();
    result_.states = origins_.size();
    return std::move(result_);
  }

 private:
  struct Origin {
    std::uint32_t parent = 0;
    std::uint32_t ordinal = 0;  // Position of the step among the parent's.
    std::uint32_t depth = 0;
    bool is_goal = false;
    bool is_dominated = false;
  };
  struct Known {
    std::uint32_t index = 0;
    std::vector<std::uint32_t> messages;  // Ascending; of all units.
  };

  // Index of the world, or of one that stands for it; and whether it is new.
  std::pair<std::uint32_t, bool> Add(const World& world, std::uint32_t parent,
                                     std::uint32_t ordinal) {
    const auto index = static_cast<std::uint32_t>(origins_.size());
    if (options_.checks_progress) {
      const auto [it, is_new] = seen_.try_emplace(FingerprintOf(Encode(world)), index);
      if (!is_new) return {it->second, false};
    } else {
      std::vector<Known>& known = known_[FingerprintOf(EncodeWithoutMessages(world))];
      std::vector<std::uint32_t> messages = MessagesOf(world);
      for (const Known& other : known) {
        if (std::includes(other.messages.begin(), other.messages.end(), messages.begin(),
                          messages.end())) {
          return {other.index, false};
        }
      }
      std::erase_if(known, [&](const Known& other) {
        const bool is_dominated = std::includes(messages.begin(), messages.end(),
                                                other.messages.begin(), other.messages.end());
        if (is_dominated) origins_[other.index].is_dominated = true;
        return is_dominated;
      });
      known.push_back({index, std::move(messages)});
    }
    const std::uint32_t depth = index == 0 ? 0 : origins_[parent].depth + 1;
    origins_.push_back({parent, ordinal, depth, false, false});
    result_.depth = std::max(result_.depth, static_cast<int>(depth));
    return {index, true};
  }

  void Expand(const World& world, std::uint32_t at) {
    origins_[at].is_goal = options_.checks_progress && model_.IsGoal(world);
    const std::vector<Step> steps = model_.EnabledSteps(world);
    World next;  // Keeps its memory from step to step: most lead to worlds that are known.
    for (std::uint32_t i = 0; i < steps.size(); ++i) {
      next = world;
      model_.Take(steps[i], next);
      const auto [index, is_new] = Add(next, at, i);
      if (index == at) continue;
      ++result_.steps;
      if (options_.checks_progress) edges_.emplace_back(at, index);
      if (!is_new) continue;
      if (auto why = model_.Violation(next)) return Fail(*std::move(why), index);
      queue_.emplace_back(index, std::move(next));
    }
  }

  void Fail(std::string why, std::uint32_t at) {
    std::vector<std::uint32_t> ordinals;
    for (; at != 0; at = origins_[at].parent) ordinals.push_back(origins_[at].ordinal);
    Counterexample found{std::move(why), {}};
    World world = model_.Initial();
    for (auto it = ordinals.rbegin(); it != ordinals.rend(); ++it) {
      const Step step = model_.EnabledSteps(world)[*it];
      found.trace.push_back(model_.Describe(step));
      model_.Take(step, world);
    }
    result_.counterexample = std::move(found);
  }

  // Goals, and whatever leads to one, backwards.
  void CheckProgress() {
    std::vector<std::uint32_t> first(origins_.size() + 1, 0);
    for (const auto& [from, to] : edges_) ++first[to + 1];
    for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    std::vector<std::uint32_t> predecessors(edges_.size());
    std::vector<std::uint32_t> next(first.begin(), first.end() - 1);
    for (const auto& [from, to] : edges_) predecessors[next[to]++] = from;
    std::vector<bool> leads(origins_.size(), false);
    std::vector<std::uint32_t> todo;
    for (std::uint32_t i = 0; i < origins_.size(); ++i) {
      if (origins_[i].is_goal) leads[i] = true, todo.push_back(i);
    }
    while (!todo.empty()) {
      const std::uint32_t at = todo.back();
      todo.pop_back();
      for (std::uint32_t e = first[at]; e < first[at + 1]; ++e) {
        const std::uint32_t from = predecessors[e];
        if (!leads[from]) leads[from] = true, todo.push_back(from);
      }
    }
    for (std::uint32_t i = 0; i < origins_.size(); ++i) {
      if (!leads[i]) return Fail("no way on: updates can never all be acknowledged", i);
    }
  }

  Model model_;
  const SearchOptions options_;
  std::deque<std::pair<std::uint32_t, World>> queue_;
  absl::flat_hash_map<Fingerprint, std::uint32_t> seen_;
  absl::flat_hash_map<Fingerprint, std::vector<Known>> known_;  // By all but the messages.
  std::vector<Origin> origins_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges_;
  SearchResult result_;
};

}  // namespace embla::model
