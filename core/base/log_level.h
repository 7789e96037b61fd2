// The least level that is logged, which changes while a program runs.
#pragma once

#include <string_view>

#include "core/base/log.h"

namespace embla {

LogLevel CurrentLogLevel();
// SetLogLevel for who asks from outside: `component` says so in the log, unless neither level lets
// it say anything.
void ChangeLogLevel(std::string_view component, LogLevel level);

// "info", "warning" or "error".
std::string_view NameOf(LogLevel level);

}  // namespace embla
