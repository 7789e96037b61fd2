#include "client/update_window.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace embla::client {

void UpdateWindow::Enter(absl::Time deadline, Granted granted) {
  absl::StatusOr<UpdateSeq> result = UpdateSeq{};
  {
    MutexLock lock(mu_);
    if (waiting_.empty() && HasRoom()) {
      result = Take();
    } else if (waiting_.size() < kWaitingMax) {
      alarm_.NoLaterThan(deadline);
      waiting_.push_back({deadline, std::move(granted)});
      return;
    } else {
      result = absl::ResourceExhaustedError(absl::StrCat(
          waiting_.size(), " updates wait behind ", incomplete_.size(), " in flight: slow down"));
    }
  }
  granted(std::move(result));
}

void UpdateWindow::Leave(UpdateSeq seq) {
  std::vector<std::pair<Granted, UpdateSeq>> grants;
  {
    MutexLock lock(mu_);
    incomplete_.erase(ToInt(seq));
    while (!waiting_.empty() && HasRoom()) {
      grants.emplace_back(std::move(waiting_.front().granted), Take());
      waiting_.pop_front();
    }
  }
  for (auto& [granted, number] : grants) granted(number);
}

UpdateSeq UpdateWindow::first_incomplete() {
  MutexLock lock(mu_);
  return UpdateSeq{incomplete_.empty() ? next_ : *incomplete_.begin()};
}

void UpdateWindow::Expire() {
  std::vector<Granted> expired;
  {
    MutexLock lock(mu_);
    const absl::Time now = timer_.Now();
    for (auto waiting = waiting_.begin(); waiting != waiting_.end();) {
      if (waiting->deadline > now) {
        alarm_.NoLaterThan(waiting->deadline);
        ++waiting;
        continue;
      }
      expired.push_back(std::move(waiting->granted));
      waiting = waiting_.erase(waiting);
    }
  }
  for (Granted& granted : expired) {
    granted(absl::DeadlineExceededError(
        absl::StrCat("waited for earlier updates; at most ", kSpanMax, " may be in flight")));
  }
}

}  // namespace embla::client
