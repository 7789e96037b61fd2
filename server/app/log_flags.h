// The flags of servers that say what they log, and how.
#pragma once

#include "core/base/log.h"
#include "core/base/log_format.h"
#include "core/base/named_option.h"

namespace embla {

struct LogFlags {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
};

// `App` is CLI::App.
template <typename App>
void AddLogFlags(App& app, LogFlags& flags) {
  AddNamedOption(
      app, "--log-level", flags.level,
      {{"info", LogLevel::kInfo}, {"warning", LogLevel::kWarning}, {"error", LogLevel::kError}},
      "Least level that is logged")
      ->default_str("info");
  AddNamedOption(app, "--log-format", flags.format,
                 {{"text", LogFormat::kText}, {"json", LogFormat::kJson}},
                 "How lines are written to stderr: text, or one JSON object each")
      ->default_str("text");
}

inline void Apply(const LogFlags& flags) {
  SetLogLevel(flags.level);
  SetLogFormat(flags.format);
}

}  // namespace embla
