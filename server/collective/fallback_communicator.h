// Collectives whose floats travel among GPUs while that works, and through the host's memory when
// it does not: a GPU that stops, or a broken link, fails nobody who has nothing to do with it.
//
// The floats that ranks give and take are in host memory, and sums have the same bits either way,
// so a verb that fails among the GPUs is simply done again.
#pragma once

#include <memory>
#include <vector>

#include "server/collective/communicator.h"

namespace embla {

// Rank r has the r-th of `gpus`, whose verbs may fail on some ranks and succeed on others, and the
// r-th of `host`, which fails only when it is aborted. Ranks agree by `host` whether a verb has
// succeeded on all of them, and do it again by `host` if not. Once any rank of `gpus` was aborted
// or has lost its GPU (Unavailable), `host` has the verbs to come, too. Barrier and AllReduceMax
// are always those of `host`. Requires: as many of both.
std::vector<std::unique_ptr<Communicator>> WithFallback(
    std::vector<std::unique_ptr<Communicator>> gpus,
    std::vector<std::unique_ptr<Communicator>> host);

}  // namespace embla
