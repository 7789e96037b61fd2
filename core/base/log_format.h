// How the lines of log.h are written: as text for people, or as JSON for collectors of logs.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/base/log.h"

namespace embla {

enum class LogFormat { kText, kJson };

// The default is kText. Not while other threads log.
void SetLogFormat(LogFormat format);

// One JSON object, without a line break: "time" (RFC 3339, UTC), "level" (info, warning or error),
// "component", "message", and every key of `parts` with its value, always a string. Bytes that are
// not UTF-8 become U+FFFD.
std::string LogJson(absl::Time time, LogLevel level, std::string_view component,
                    std::initializer_list<absl::string_view> parts);

}  // namespace embla
