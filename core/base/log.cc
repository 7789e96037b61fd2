#include "core/base/log.h"

#include <atomic>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/log_format.h"
#include "core/base/log_level.h"

namespace embla {
namespace {

// Relaxed: the level guards no other data.
std::atomic<LogLevel> log_level{LogLevel::kInfo};
std::atomic<LogFormat> log_format{LogFormat::kText};

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

void AppendEscaped(absl::string_view text, bool in_quotes, std::string& out) {
  constexpr char kHex[] = "0123456789abcdef";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (IsControl(c)) {
      const char escaped[] = {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
      out.append(escaped, sizeof(escaped));
    } else {
      if (in_quotes && (c == '"' || c == '\\')) out.push_back('\\');
      out.push_back(c);
    }
  }
}

bool NeedsQuotes(absl::string_view value) {
  if (value.empty()) return true;
  for (const char c : value) {
    if (IsControl(c) || c == ' ' || c == '"' || c == '\\' || c == '=') return true;
  }
  return false;
}

std::string FormatLogTime(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

}  // namespace

void SetLogLevel(LogLevel level) { log_level.store(level, std::memory_order_relaxed); }

LogLevel CurrentLogLevel() { return log_level.load(std::memory_order_relaxed); }

void ChangeLogLevel(std::string_view component, LogLevel level) {
  const LogLevel before = CurrentLogLevel();
  if (level == before) return;
  if (level < before) SetLogLevel(level);
  LogInfo(component, "log level from=", ToAbsl(NameOf(before)), " to=", ToAbsl(NameOf(level)));
  SetLogLevel(level);
}

std::string_view NameOf(LogLevel level) {
  constexpr std::string_view kNames[] = {"info", "warning", "error"};
  return kNames[static_cast<int>(level)];
}

void SetLogFormat(LogFormat format) { log_format.store(format, std::memory_order_relaxed); }

std::string LogText(std::initializer_list<absl::string_view> parts) {
  std::string text;
  for (const absl::string_view part : parts) {
    const bool quoted = !text.empty() && text.back() == '=' && NeedsQuotes(part);
    if (quoted) text.push_back('"');
    AppendEscaped(part, quoted, text);
    if (quoted) text.push_back('"');
  }
  return text;
}

std::string LogJson(absl::Time time, LogLevel level, std::string_view component,
                    std::initializer_list<absl::string_view> parts) {
  std::string message;
  std::string key;  // The next part is its value; empty: none is.
  nlohmann::ordered_json line = {{"time", FormatLogTime(time)},
                                 {"level", NameOf(level)},
                                 {"component", component},
                                 {"message", ""}};
  for (const absl::string_view part : parts) {
    if (!key.empty()) {
      line[key] = std::string_view(part.data(), part.size());
      key.clear();
      continue;
    }
    for (const absl::string_view word : absl::StrSplit(part, ' ', absl::SkipEmpty())) {
      if (const auto equals = word.find('='); equals == absl::string_view::npos || equals == 0) {
        absl::StrAppend(&message, message.empty() ? "" : " ", word);
      } else if (equals + 1 == word.size()) {
        key = std::string(word.substr(0, equals));
      } else {
        line[std::string(word.substr(0, equals))] = std::string(word.substr(equals + 1));
      }
    }
  }
  line["message"] = message;
  return line.dump(-1, ' ', /*ensure_ascii=*/false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

void LogLine(LogLevel level, std::string_view component,
             std::initializer_list<absl::string_view> parts) {
  if (level < CurrentLogLevel()) return;
  constexpr char kLetters[] = {'I', 'W', 'E'};
  const absl::Time now = absl::Now();
  const bool is_json = log_format.load(std::memory_order_relaxed) == LogFormat::kJson;
  const std::string line =
      is_json ? LogJson(now, level, component, parts) + "\n"
              : absl::StrCat(FormatLogTime(now), " ",
                             absl::string_view(&kLetters[static_cast<int>(level)], 1), " ",
                             ToAbsl(component), " ", LogText(parts), "\n");
  // One write per line, so lines of several threads do not mix.
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace embla
