// Whether a program does what it is there for, for those who ask over HTTP or gRPC.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "core/base/mutex.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class Readiness {
 public:
  // OK: it does; else what is missing.
  void Set(absl::Status status) {
    MutexLock lock(mu_);
    status_ = std::move(status);
  }
  absl::Status Get() const {
    MutexLock lock(mu_);
    return status_;
  }

 private:
  mutable Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_) = absl::UnavailableError("the program starts");
};

}  // namespace embla
