// Tells systemd, where a unit with Type=notify has started the program (sd_notify(3)): that it is
// ready, what is missing until then, that it stops and, for WatchdogSec=, that it goes on.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "server/app/stop_signal.h"

namespace embla {

// Waits for the signal that stops the program, and returns its number. `ready` says whether the
// program does what it is there for, else what is missing; it is asked several times a second,
// and systemd takes the program for hung while it does not return. Without NOTIFY_SOCKET in the
// environment, and in builds without EMBLA_SYSTEMD, nobody is told and `ready` is not asked.
int WaitForStop(const StopSignal& stop_signal, const std::function<absl::Status()>& ready);

}  // namespace embla
