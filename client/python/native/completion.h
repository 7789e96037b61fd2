// The end of one call: set once, by any thread; awaited by any number of threads, or by an event
// loop through a file descriptor. Knows nothing of Python, so client threads never need the GIL.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/file_descriptor.h"
#include "core/base/mutex.h"

namespace embla::python {

class Completion {
 public:
  Completion() = default;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  // The first one counts; returns whether this was it.
  bool Set(absl::Status status);

  bool done() const;
  // Requires done().
  absl::Status status() const;
  // Returns done(), after `timeout` at the latest.
  bool WaitFor(absl::Duration timeout) const;
  // Calls `next` with the status once it is set: on the thread that sets it, or at once.
  void Then(std::function<void(const absl::Status&)> next);
  // A descriptor that can be read from the moment of Set on. It lives as long as this object.
  absl::StatusOr<int> ReadableDescriptor();

 private:
  mutable Mutex mu_;
  mutable CondVar changed_;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::vector<std::function<void(const absl::Status&)>> next_ ABSL_GUARDED_BY(mu_);
  FileDescriptor readable_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla::python
