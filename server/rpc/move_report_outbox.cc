#include "server/rpc/move_report_outbox.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace embla {

void MoveReportOutbox::Report(std::vector<UnitReport> reports) {
  {
    MutexLock lock(mu_);
    for (UnitReport& report : reports) {
      if (waiting_.size() < kReportsMax) waiting_.push_back(std::move(report));
    }
  }
  MutexLock lock(wake_mu_);
  if (wake_) wake_();
}

void MoveReportOutbox::SetWake(std::function<void()> wake) {
  MutexLock lock(wake_mu_);
  wake_ = std::move(wake);
}

bool MoveReportOutbox::empty() const {
  MutexLock lock(mu_);
  return waiting_.empty();
}

std::vector<UnitReport> MoveReportOutbox::Take(std::size_t reports_max) {
  MutexLock lock(mu_);
  const auto end =
      waiting_.begin() + static_cast<std::ptrdiff_t>(std::min(reports_max, waiting_.size()));
  std::vector<UnitReport> taken(std::make_move_iterator(waiting_.begin()),
                                std::make_move_iterator(end));
  waiting_.erase(waiting_.begin(), end);
  return taken;
}

}  // namespace embla
