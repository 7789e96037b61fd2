// One line per state change, never per request:
//   2026-01-01T00:00:00.000Z I shard message key=value
//   info     a state changed      warning  heals by itself      error  a request or data was lost
#pragma once

#include <string_view>

#include "absl/strings/str_cat.h"
#include "core/base/text.h"

namespace embla {

enum class LogLevel { kInfo, kWarning, kError };

// Lines below `level` are dropped. The default is kInfo.
void SetLogLevel(LogLevel level);

// Writes one line to stderr. `component` is the room that speaks, for instance "shard".
void LogLine(LogLevel level, std::string_view component, std::string_view message);

template <typename... Parts>
void LogInfo(std::string_view component, const Parts&... parts) {
  LogLine(LogLevel::kInfo, component, absl::StrCat(parts...));
}
template <typename... Parts>
void LogWarning(std::string_view component, const Parts&... parts) {
  LogLine(LogLevel::kWarning, component, absl::StrCat(parts...));
}
template <typename... Parts>
void LogError(std::string_view component, const Parts&... parts) {
  LogLine(LogLevel::kError, component, absl::StrCat(parts...));
}

}  // namespace embla
