// Collectives through shared host memory: a rank publishes where its input is, and reads the
// others' inputs directly. Two waits per verb, no copies but the result.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "server/collective/communicator.h"

namespace embla {

// The communicators of ranks 0..size-1; they share one meeting place and may be destroyed in any
// order. Requires: size >= 1.
std::vector<std::unique_ptr<Communicator>> MakeHostCommunicators(std::uint32_t size);

}  // namespace embla
