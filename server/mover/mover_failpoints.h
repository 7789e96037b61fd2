// Points where tests end a process in the middle of a move (core/base/failpoint.h). Before each
// piece of work of a unit there is a point:
//   mover.log_own, log_freeze, log_unfreeze, log_release, log_trim, log_import, log_seal,
//   log_discard                                      a control record
//   mover.reserve, stage, install, discard, trim     what changes the node's tables
//   mover.pull, chunk, final                         what is said to the other end
//   mover.report, abort, read                        what is said to the coordinator
// and mover.logged and mover.host_done after what takes time.
#pragma once

#include <string_view>

#include "server/mover/moving_unit.h"

namespace embla {

std::string_view FailpointOf(const UnitWork& work);

}  // namespace embla
