#include "core/base/testing/file_failures.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "core/base/failpoint.h"
#include "core/base/testing/temp_directory.h"
#include "gtest/gtest.h"

namespace embla::testing {
namespace {

constexpr int kCrashExitCode = 86;  // Exit code of FailpointAction::kCrash.

std::uint64_t UsesInScript(const char* point, const FileScript& script) {
  const TempDirectory directory;
  SetFailpoint(point, FailpointAction::kError, 1'000'000);
  script(directory.path(), [](int) {});
  const std::uint64_t uses = FailpointUses(point);
  ClearFailpoints();
  return uses;
}

// Calls `run` with a fresh directory for each use of each point.
void ForEveryUse(std::span<const char* const> points, const FileScript& script,
                 const FileCheck& check,
                 const std::function<int(const char* point, std::uint64_t use,
                                         const std::string& directory)>& run) {
  for (const char* const point : points) {
    const std::uint64_t uses = UsesInScript(point, script);
    ASSERT_GT(uses, 0u) << point;
    for (std::uint64_t use = 1; use <= uses; ++use) {
      SCOPED_TRACE(::testing::Message() << point << " at use " << use);
      const TempDirectory directory;
      check(directory.path(), run(point, use, directory.path()));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// In a child process; its last promise.
int RunUntilDeath(const char* point, std::uint64_t use, const FileScript& script,
                  const std::string& directory) {
  int pipe_ends[2];
  EXPECT_EQ(::pipe(pipe_ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    SetFailpoint(point, FailpointAction::kCrash, use);
    script(directory, [&](int i) {
      const auto byte = static_cast<char>(i);
      if (::write(pipe_ends[1], &byte, 1) != 1) std::_Exit(2);
    });
    std::_Exit(0);
  }
  ::close(pipe_ends[1]);
  int acked = 0;
  for (char byte = 0; ::read(pipe_ends[0], &byte, 1) == 1;) acked = byte;
  ::close(pipe_ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), kCrashExitCode) << "the child did not crash";
  return acked;
}

}  // namespace

void FailEveryFileOperation(std::span<const char* const> points, const FileScript& script,
                            const FileCheck& check) {
  ForEveryUse(points, script, check,
              [&](const char* point, std::uint64_t use, const std::string& directory) {
                int acked = 0;
                SetFailpoint(point, FailpointAction::kError, use);
                script(directory, [&](int i) { acked = i; });
                ClearFailpoints();
                return acked;
              });
}

void DieAtEveryFileOperation(std::span<const char* const> points, const FileScript& script,
                             const FileCheck& check) {
  ForEveryUse(points, script, check,
              [&](const char* point, std::uint64_t use, const std::string& directory) {
                return RunUntilDeath(point, use, script, directory);
              });
}

}  // namespace embla::testing
