// Starts programs that end with this process.
//
// Linux sends a child its parent-death signal when the *thread* that started it ends, so the
// children are started by a thread of this object, which lives as long as the object. The end of
// the process, SIGKILL included, ends that thread. A pipe that children watch would do the same,
// until a fork of this process, such as a data loader, keeps the pipe open.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "client/python/native/fork_guard.h"
#include "core/base/mutex.h"

namespace embla::python {

// Thread safety: every method may be called from any thread.
class ChildStarter {
 public:
  ChildStarter();
  ~ChildStarter() { Close(); }
  ChildStarter(const ChildStarter&) = delete;
  ChildStarter& operator=(const ChildStarter&) = delete;

  // The process id of `command`, which runs in a process group of its own, so that the terminal's
  // Ctrl-C does not reach it, and gets SIGTERM when this object or the process ends. NotFound,
  // PermissionDenied: the program or the log cannot be opened.
  absl::StatusOr<int> Start(const std::vector<std::string>& command, const std::string& log_path);
  // Children that are left get SIGTERM. Start fails afterwards. In a child of fork: does nothing.
  void Close();

 private:
  struct Request {
    const std::vector<std::string>* command = nullptr;  // Not owned; null: nothing is asked.
    int log = -1;
    bool done = false;
    absl::StatusOr<int> pid = absl::UnknownError("");
  };
  void Serve();

  const ForkGuard fork_guard_;
  Mutex mu_;
  CondVar changed_;
  Request* request_ ABSL_GUARDED_BY(mu_) = nullptr;  // Not owned; the caller waits for it.
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // Joined by the Close that sets closing_.
};

}  // namespace embla::python
