#include "client/python/native/child_starter.h"

#include <cerrno>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "core/base/file_descriptor.h"

extern char** environ;

namespace embla::python {
namespace {

// In the child of a vfork, whose memory is the parent's: only system calls, nothing is changed but
// `error`.
[[noreturn]] void BecomeProgram(char* const* arguments, int input, int log, pid_t parent,
                                int& error) {
  // Python ignores SIGPIPE, and what is ignored stays so over an exec.
  signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // The parent may have died before the request for the signal: its child has another parent then.
  if (setpgid(0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == parent &&
      dup2(input, STDIN_FILENO) >= 0 && dup2(log, STDOUT_FILENO) >= 0 &&
      dup2(log, STDERR_FILENO) >= 0) {
    execve(arguments[0], arguments, environ);
  }
  error = errno;
  _exit(127);
}

absl::StatusOr<int> StartHere(const std::vector<std::string>& command, int log) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const FileDescriptor input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!input.is_open()) return absl::ErrnoToStatus(errno, "/dev/null");
  volatile int error = 0;
  const pid_t parent = getpid();
  // No handlers of fork run, gRPC's among them, and the parent's thread stands until the exec.
  const pid_t child = vfork();
  if (child == 0) {
    BecomeProgram(arguments.data(), input.number(), log, parent, const_cast<int&>(error));
  }
  if (child < 0) return absl::ErrnoToStatus(errno, "vfork");
  if (error != 0) {
    waitpid(child, nullptr, 0);
    return absl::ErrnoToStatus(error, command.front());
  }
  return child;
}

}  // namespace

ChildStarter::ChildStarter() : thread_([this] { Serve(); }) {}

absl::StatusOr<int> ChildStarter::Start(const std::vector<std::string>& command,
                                        const std::string& log_path) {
  if (fork_guard_.forked()) return absl::FailedPreconditionError("it is the parent's");
  if (command.empty()) return absl::InvalidArgumentError("the command is empty");
  const FileDescriptor log(open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log.is_open()) return absl::ErrnoToStatus(errno, log_path);
  Request request{.command = &command, .log = log.number()};
  const MutexLock lock(mu_);
  while (request_ != nullptr && !closing_) changed_.Wait(mu_);
  if (closing_) return absl::FailedPreconditionError("no more programs are started: it is closed");
  request_ = &request;
  changed_.NotifyAll();
  while (!request.done) changed_.Wait(mu_);
  return std::move(request.pid);
}

void ChildStarter::Close() {
  if (fork_guard_.forked()) {  // The thread is the parent's, and its lock may be held.
    if (thread_.joinable()) thread_.detach();
    return;
  }
  {
    const MutexLock lock(mu_);
    if (closing_) {
      while (!closed_) changed_.Wait(mu_);
      return;
    }
    closing_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
  const MutexLock lock(mu_);
  closed_ = true;
  changed_.NotifyAll();
}

void ChildStarter::Serve() {
  const MutexLock lock(mu_);
  while (true) {
    while (request_ == nullptr && !closing_) changed_.Wait(mu_);
    if (request_ == nullptr) return;
    request_->pid = StartHere(*request_->command, request_->log);
    request_->done = true;
    request_ = nullptr;
    changed_.NotifyAll();
  }
}

}  // namespace embla::python
