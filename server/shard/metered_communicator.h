// A communicator that counts the time that its rank spends in it.
#pragma once

#include <memory>

#include "core/metrics/metrics.h"
#include "server/collective/communicator.h"

namespace embla {

// `seconds` counts every verb, waiting for other ranks included.
std::unique_ptr<Communicator> Metered(std::unique_ptr<Communicator> rank, Counter seconds);

}  // namespace embla
