// One line per state change, never per request:
//   2026-01-01T00:00:00.000Z I shard message key=value
//   info     a state changed      warning  heals by itself      error  a request or data was lost
//
// Values may come from strangers. A part that follows a part that ends in "=" is a value: it is put
// in quotes when it is empty or has blanks, quotes, "=" or control characters. Control characters
// are escaped everywhere, so no value can make a line or a key of its own.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "core/base/text.h"

namespace embla {

enum class LogLevel { kInfo, kWarning, kError };

// Lines below `level` are dropped. The default is kInfo.
void SetLogLevel(LogLevel level);

// Writes one line to stderr, made of `parts`. `component` is the room that speaks, for instance
// "shard".
void LogLine(LogLevel level, std::string_view component,
             std::initializer_list<absl::string_view> parts);

// `parts` as they stand in a line.
std::string LogText(std::initializer_list<absl::string_view> parts);

template <typename... Parts>
void LogInfo(std::string_view component, const Parts&... parts) {
  LogLine(LogLevel::kInfo, component, {absl::AlphaNum(parts).Piece()...});
}
template <typename... Parts>
void LogWarning(std::string_view component, const Parts&... parts) {
  LogLine(LogLevel::kWarning, component, {absl::AlphaNum(parts).Piece()...});
}
template <typename... Parts>
void LogError(std::string_view component, const Parts&... parts) {
  LogLine(LogLevel::kError, component, {absl::AlphaNum(parts).Piece()...});
}

}  // namespace embla
