// Time that jumps of the machine's clock do not touch.
#pragma once

#include "core/base/clock.h"

namespace embla {

// Wall time when the process first asks, and from then on the time that has really passed. Lives
// for ever.
const Clock& SteadyClock();

}  // namespace embla
