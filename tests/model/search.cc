#include "tests/model/search.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "tests/model/encode.h"

namespace embla::model {
namespace {

using Fingerprint = std::pair<std::uint64_t, std::uint64_t>;

std::uint64_t Mixed(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ x >> 33;
}

Fingerprint FingerprintOf(const std::string& bytes) {
  std::uint64_t a = bytes.size();
  std::uint64_t b = ~a;
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    std::uint64_t word = 0;
    bytes.copy(reinterpret_cast<char*>(&word), 8, i);
    a = Mixed(a ^ word);
    b = Mixed(b + word * 0x9e3779b97f4a7c15ULL + 1);
  }
  return {a, b};
}

class Searcher {
 public:
  Searcher(const ModelConfig& config, const SearchOptions& options)
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
    std::uint32_t ordinal = 0;  // Of the step, among the parent's.
    std::uint32_t depth = 0;
    bool is_goal = false;
    bool is_dominated = false;
  };
  struct Known {
    std::uint32_t index = 0;
    std::vector<std::uint32_t> messages;  // Ascending; of all units.
  };

  static std::vector<std::uint32_t> MessagesOf(const World& world) {
    std::vector<std::uint32_t> all;
    std::uint32_t unit = 0;
    for (const UnitWorld& each : world) {
      for (const std::uint16_t id : each.messages) all.push_back(unit << 16 | id);
      ++unit;
    }
    return all;
  }

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
    for (std::uint32_t i = 0; i < steps.size(); ++i) {
      World next = world;
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

}  // namespace

SearchResult Search(const ModelConfig& config, const SearchOptions& options) {
  return Searcher(config, options).Run();
}

std::string ToString(const SearchResult& result) {
  std::string words = absl::StrCat(result.states, " states, ", result.steps, " steps, depth ",
                                   result.depth, result.is_complete ? ", complete" : "");
  if (!result.counterexample.has_value()) return words;
  absl::StrAppend(&words, "\n  ", result.counterexample->why, " after ",
                  result.counterexample->trace.size(), " steps:");
  int number = 0;
  for (const std::string& step : result.counterexample->trace) {
    absl::StrAppend(&words, "\n  ", ++number, ". ", step);
  }
  return words;
}

}  // namespace embla::model
