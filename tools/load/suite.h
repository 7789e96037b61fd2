// The cases that docs/benchmarks.md quotes.
#pragma once

#include <vector>

#include "tools/load/workload.h"

namespace embla::load {

// One connection, one table of dim 64: lookups and updates of 4,096 ids, fp32 and bf16 on the wire,
// and lookups of 64 ids one at a time and 16 in flight.
std::vector<Case> ServiceSuite();

}  // namespace embla::load
