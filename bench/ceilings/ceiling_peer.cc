#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "bench/ceilings/ceiling.h"

namespace embla::bench {

absl::StatusOr<std::unique_ptr<CeilingPeer>> CeilingPeer::Start(const std::string& program) {
  int out[2];
  if (::pipe2(out, O_CLOEXEC) != 0) return absl::InternalError("pipe failed");
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(out[1], STDOUT_FILENO);
    ::execl(program.c_str(), program.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(out[1]);
  if (pid < 0) return absl::InternalError("fork failed");
  std::unique_ptr<CeilingPeer> peer(new CeilingPeer);
  peer->pid_ = pid;
  std::FILE* lines = ::fdopen(out[0], "r");
  char grpc[128], socket[128];
  const int found = std::fscanf(lines, "%127s %127s", grpc, socket);
  std::fclose(lines);
  if (found != 2) return absl::InternalError(absl::StrCat("cannot start ", program));
  peer->grpc_address_ = grpc;
  peer->socket_address_ = socket;
  return peer;
}

CeilingPeer::~CeilingPeer() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

}  // namespace embla::bench
