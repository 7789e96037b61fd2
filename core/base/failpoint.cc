#include "core/base/failpoint.h"

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla {
namespace {

constexpr int kCrashExitCode = 86;

struct Point {
  FailpointAction action = FailpointAction::kError;
  std::uint64_t left = 0;  // Uses until it acts; 0: off.
  std::uint64_t uses = 0;
};

struct Registry {
  Mutex mu;
  std::map<std::string, Point, std::less<>> points ABSL_GUARDED_BY(mu);
};

// kUnknown until the environment has been read.
enum State : int { kUnknown, kOff, kOn };
constinit std::atomic<int> state{kUnknown};

Registry& Points() {
  static auto* const registry = new Registry;
  return *registry;
}

void ReadEnvironmentOnce() {
  static const bool done = [] {
    int unknown = kUnknown;
    state.compare_exchange_strong(unknown, kOff);
    const char* const text = std::getenv("EMBLA_FAILPOINTS");
    if (text == nullptr) return true;
    if (const absl::Status status = SetFailpoints(text); !status.ok()) {
      LogError("failpoint", "EMBLA_FAILPOINTS: ", status.message());
      std::_Exit(kCrashExitCode);  // A test that believes in its failures must not pass.
    }
    return true;
  }();
  static_cast<void>(done);
}

struct Setting {
  std::string name;
  FailpointAction action;
  std::uint64_t hit;
};

absl::StatusOr<Setting> ParseSetting(std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::size_t at = text.find('@');
  const std::string_view action =
      equals == std::string_view::npos ? "" : text.substr(equals + 1, at - equals - 1);
  Setting setting{std::string(text.substr(0, equals)), FailpointAction::kError, 1};
  bool valid = !setting.name.empty() && (action == "error" || action == "crash");
  if (action == "crash") setting.action = FailpointAction::kCrash;
  if (at != std::string_view::npos) {
    const std::string_view digits = text.substr(at + 1);
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, setting.hit);
    valid = valid && error == std::errc() && stop == end && setting.hit > 0;
  }
  if (valid) return setting;
  return absl::InvalidArgumentError(absl::StrCat(
      "failpoint \"", ToAbsl(text), "\" is not NAME=error or NAME=crash, with @HIT or without"));
}

}  // namespace

void WarnOfFailpoints() {
  const char* const text = std::getenv("EMBLA_FAILPOINTS");
  if (text == nullptr || *text == '\0') return;
  LogWarning("failpoint", "EMBLA_FAILPOINTS is set: this process fails on purpose points=", text);
}

absl::Status Failpoint(std::string_view name) {
  const int now = state.load(std::memory_order_relaxed);  // Only a hint: the mutex decides.
  if (now == kOff) return absl::OkStatus();
  ReadEnvironmentOnce();
  Registry& registry = Points();
  const MutexLock lock(registry.mu);
  if (state.load(std::memory_order_relaxed) != kOn) return absl::OkStatus();
  Point& point = registry.points[std::string(name)];
  ++point.uses;
  if (point.left == 0 || --point.left > 0) return absl::OkStatus();
  if (point.action == FailpointAction::kCrash) std::_Exit(kCrashExitCode);
  return absl::UnavailableError(absl::StrCat("failpoint ", ToAbsl(name)));
}

void SetFailpoint(std::string_view name, FailpointAction action, std::uint64_t hit) {
  Registry& registry = Points();
  const MutexLock lock(registry.mu);
  Point& point = registry.points[std::string(name)];
  point.action = action;
  point.left = hit;
  state.store(kOn, std::memory_order_relaxed);
}

absl::Status SetFailpoints(std::string_view text) {
  std::vector<Setting> settings;
  for (const std::string& part :
       std::vector<std::string>(absl::StrSplit(ToAbsl(text), ';', absl::SkipEmpty()))) {
    EMBLA_ASSIGN_OR_RETURN(settings.emplace_back(), ParseSetting(part));
  }
  for (const Setting& setting : settings) SetFailpoint(setting.name, setting.action, setting.hit);
  return absl::OkStatus();
}

void ClearFailpoints() {
  Registry& registry = Points();
  const MutexLock lock(registry.mu);
  registry.points.clear();
  state.store(kOff, std::memory_order_relaxed);
}

std::uint64_t FailpointUses(std::string_view name) {
  Registry& registry = Points();
  const MutexLock lock(registry.mu);
  const auto it = registry.points.find(name);
  return it == registry.points.end() ? 0 : it->second.uses;
}

}  // namespace embla
