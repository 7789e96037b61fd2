// Random walks through worlds too large to search: many moves, units and nodes. After the walk the
// faults stop, and everything must come to rest with every update acknowledged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tests/model/search.h"
#include "tests/model/world.h"

namespace embla::model {

struct WalkResult {
  std::optional<Counterexample> counterexample;
  std::uint64_t commits = 0;
  std::uint64_t aborts = 0;
  std::uint64_t crashes_while_frozen = 0;
  std::uint64_t crashes_while_releasing = 0;
};

WalkResult Walk(const ModelConfig& config, std::uint64_t seed, int steps);

}  // namespace embla::model
