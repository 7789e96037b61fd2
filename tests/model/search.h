// Breadth-first search through every world that a configuration can reach. Deterministic; a
// counterexample is a short one. Worlds are told apart by a 128-bit fingerprint: two of 10^7
// share one with a chance below 10^-24.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/model/world.h"

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

SearchResult Search(const ModelConfig& config, const SearchOptions& options = {});

std::string ToString(const SearchResult& result);

}  // namespace embla::model
