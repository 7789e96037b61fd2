// Points where tests end a process in the middle of a move (core/base/failpoint.h). Before each
// piece of work of a unit there is a point:
//   mover.log_own, log_release, log_abort, log_trim, log_import, log_discard, log_relocate
//                                                    a control record
//   mover.reserve, stage, reset, install, relocate, discard, trim
//                                                    what changes the node's tables
//   mover.pull, chunk, final, holds, release, covered  what is said to the other end
//   mover.report                                     what is said to the coordinator
// and mover.logged and mover.host_done after what takes time.
#pragma once

#include <string_view>

#include "server/mover/moving_unit.h"

namespace embla {

std::string_view FailpointOf(const UnitWork& work);

}  // namespace embla
