#include "server/app/systemd_notice.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#if EMBLA_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

namespace embla {

#if EMBLA_SYSTEMD
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(200);

// How often systemd wants to hear of this process; infinite: never.
absl::Duration WatchdogInterval() {
  std::uint64_t microseconds = 0;
  if (sd_watchdog_enabled(0, &microseconds) <= 0) return absl::InfiniteDuration();
  return absl::Microseconds(static_cast<std::int64_t>(microseconds));
}

// Says each thing once, and of the watchdog as often as is needed.
class Notice {
 public:
  void Tell(const absl::Status& ready) {
    std::string text;
    if (ready.ok() && !is_ready_) text = "READY=1\n";
    is_ready_ = is_ready_ || ready.ok();
    // A line break would begin another field.
    const std::string status = ready.ok() ? "serving" : std::string(ready.message());
    if (status != status_) {
      absl::StrAppend(&text, "STATUS=", absl::StrReplaceAll(status, {{"\n", " "}}), "\n");
    }
    status_ = status;
    if (Clock::Real().Now() >= next_sign_) {
      absl::StrAppend(&text, "WATCHDOG=1\n");
      next_sign_ = Clock::Real().Now() + watchdog_ / 4;
    }
    if (!text.empty()) Send(text);
  }
  void Send(const std::string& text) {
    if (sd_notify(0, text.c_str()) >= 0 || has_warned_) return;
    has_warned_ = true;
    LogWarning("process", "systemd cannot be told how this program is; NOTIFY_SOCKET=",
               std::getenv("NOTIFY_SOCKET"));
  }
  absl::Duration look() const { return std::min(kLook, watchdog_ / 4); }

 private:
  const absl::Duration watchdog_ = WatchdogInterval();
  absl::Time next_sign_ =
      watchdog_ == absl::InfiniteDuration() ? absl::InfiniteFuture() : absl::InfinitePast();
  bool is_ready_ = false;
  bool has_warned_ = false;
  std::string status_;
};

}  // namespace

int WaitForStop(const StopSignal& stop_signal, const std::function<absl::Status()>& ready) {
  if (std::getenv("NOTIFY_SOCKET") == nullptr) return stop_signal.Wait();
  Notice notice;
  while (true) {
    notice.Tell(ready());
    if (const std::optional<int> signal = stop_signal.WaitFor(notice.look())) {
      notice.Send("STOPPING=1\nSTATUS=stopping\n");
      return *signal;
    }
  }
}
#else
int WaitForStop(const StopSignal& stop_signal, const std::function<absl::Status()>&) {
  return stop_signal.Wait();
}
#endif

}  // namespace embla
