// Reports of moves on their way to the coordinator: filled by the mover, emptied by whatever link
// to the coordinator there is.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "core/base/mutex.h"
#include "server/mover/move_transport.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class MoveReportOutbox final : public MoveControl {
 public:
  // Reports that wait; later ones are dropped.
  static constexpr std::size_t kReportsMax = 16384;

  void Report(std::vector<UnitReport> reports) override;

  // `wake` is called after each Report from now on, and must not block. Empty: none
  // is. When this returns, the one before is not running and will not run again.
  void SetWake(std::function<void()> wake);
  bool empty() const;
  // At most `reports_max` of the oldest.
  std::vector<UnitReport> Take(std::size_t reports_max);

 private:
  mutable Mutex mu_;
  std::vector<UnitReport> waiting_ ABSL_GUARDED_BY(mu_);
  // Lock order: wake_mu_, then whatever `wake` locks.
  Mutex wake_mu_;
  std::function<void()> wake_ ABSL_GUARDED_BY(wake_mu_);
};

}  // namespace embla
