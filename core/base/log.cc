#include "core/base/log.h"

#include <atomic>
#include <cstdio>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace embla {
namespace {

// Relaxed: the level is set at start and guards no other data.
std::atomic<LogLevel> log_level{LogLevel::kInfo};

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

}  // namespace

void SetLogLevel(LogLevel level) { log_level.store(level, std::memory_order_relaxed); }

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

void LogLine(LogLevel level, std::string_view component,
             std::initializer_list<absl::string_view> parts) {
  if (level < log_level.load(std::memory_order_relaxed)) return;
  constexpr char kLetters[] = {'I', 'W', 'E'};
  const std::string line =
      absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()), " ",
                   absl::string_view(&kLetters[static_cast<int>(level)], 1), " ", ToAbsl(component),
                   " ", LogText(parts), "\n");
  // One write per line, so lines of several threads do not mix.
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace embla
