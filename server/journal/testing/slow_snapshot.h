// A snapshot whose image is taken at one moment and whose rows are read at another, for tests.
#pragma once

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/mutex.h"
#include "server/journal/node_journal.h"
#include "server/mover/mover.h"
#include "server/mover/restored_unit.h"

namespace embla::testing {

// Thread safety: none; a snapshot at a time.
class SlowSnapshot {
 public:
  SlowSnapshot() = default;
  SlowSnapshot(const SlowSnapshot&) = delete;
  SlowSnapshot& operator=(const SlowSnapshot&) = delete;
  ~SlowSnapshot() { static_cast<void>(Finish()); }

  // The image is taken when it returns, or the snapshot has failed: Finish says so. `journal` is
  // not closed before Finish. Requires: none is under way.
  void Begin(
      NodeJournal& journal,
      const Mover::LoggedUnits& units = [] { return std::vector<RestoredUnit>(); }) {
    {
      const MutexLock lock(mu_);
      has_image_ = may_read_ = false;
    }
    thread_ = std::thread([this, &journal, units] {
      const absl::Status taken = journal.TakeSnapshot([&](const auto& work) {
        work(units);
        const MutexLock lock(mu_);
        has_image_ = true;
        changed_.NotifyAll();
        while (!may_read_) changed_.Wait(mu_);
        return true;
      });
      const MutexLock lock(mu_);
      status_ = taken;
      has_image_ = true;
      changed_.NotifyAll();
    });
    const MutexLock lock(mu_);
    while (!has_image_) changed_.Wait(mu_);
  }
  bool is_under_way() const { return thread_.joinable(); }
  // Reads and writes the rows. OK: none was under way.
  absl::Status Finish() {
    if (!is_under_way()) return absl::OkStatus();
    {
      const MutexLock lock(mu_);
      may_read_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
    const MutexLock lock(mu_);
    return status_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool has_image_ ABSL_GUARDED_BY(mu_) = false;
  bool may_read_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace embla::testing
