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

}  // namespace

void SetLogLevel(LogLevel level) { log_level.store(level, std::memory_order_relaxed); }

void LogLine(LogLevel level, std::string_view component, std::string_view message) {
  if (level < log_level.load(std::memory_order_relaxed)) return;
  constexpr char kLetters[] = {'I', 'W', 'E'};
  const std::string line =
      absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()), " ",
                   absl::string_view(&kLetters[static_cast<int>(level)], 1), " ", ToAbsl(component),
                   " ", ToAbsl(message), "\n");
  // One write per line, so lines of several threads do not mix.
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace embla
