// Programs and the limit of open files: they raise it, refuse one that is too low, and take
// connections again after they had no descriptors left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/include/embla/admin.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "server/rpc/http2_fixture.h"
#include "tests/testing/process_cluster.h"

namespace embla::descriptors_test {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::ChildProcess;
using ::embla::testing::IsOk;
using ::embla::testing::kAwaitMax;
using ::testing::HasSubstr;

std::string TextOf(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class Descriptors : public ::testing::Test {
 protected:
  // `limits` are words for a shell, such as "ulimit -n 128".
  ChildProcess Start(const std::string& limits, const std::string& flags) {
    const char* const programs = std::getenv("EMBLA_BIN_DIR");
    const std::string command =
        absl::StrCat(limits, "; exec ", programs, "/embla-coordinator --state-dir ", path("state"),
                     " --port-file ", path("ports"), " ", flags);
    absl::StatusOr<ChildProcess> child =
        ChildProcess::Start({"/bin/sh", "-c", command}, path("log"));
    EXPECT_THAT(child, IsOk());
    return *std::move(child);
  }
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }
  std::string AwaitPort(const char* which) {
    AwaitFor([&] { return std::filesystem::exists(path("ports")); }, kAwaitMax, "the port file");
    return nlohmann::json::parse(TextOf(path("ports"))).at(which).get<std::string>();
  }

  testing::TempDirectory directory_;
};

TEST_F(Descriptors, ProgramThatRanOutOfThemTakesConnectionsAgain) {
  ChildProcess coordinator = Start("ulimit -n 128", "--descriptors-min 64");
  const std::string address = AwaitPort("admin");
  std::vector<FileDescriptor> sockets;
  for (int i = 0; i < 400; ++i) sockets.push_back(http2::Connect(address));
  AwaitFor([&] { return http2::IsClosed(sockets.back()); }, kAwaitMax,
           "a connection is closed for want of descriptors");
  sockets.clear();
  AwaitFor(
      [&] {
        const auto admin = client::Admin::Connect(address, absl::Seconds(5));
        return admin.ok() && (*admin)->Call<v1::ListNodesReply>(v1::ListNodesRequest()).ok();
      },
      kAwaitMax, "the program answers again");
  EXPECT_THAT(TextOf(path("log")), HasSubstr("connection refused reason=descriptors"));
  coordinator.Signal(SIGTERM);
  EXPECT_EQ(coordinator.Wait(), 0);
}

TEST_F(Descriptors, ProgramRaisesItsLimitOrRefusesToStart) {
  ChildProcess refused = Start("ulimit -n 1000", "");
  EXPECT_EQ(refused.Wait(), 1);
  EXPECT_THAT(TextOf(path("log")), HasSubstr("at least 4096 are needed: raise the hard limit"));
  ChildProcess started = Start("ulimit -Sn 100", "");
  EXPECT_NE(AwaitPort("listen"), "");
  started.Signal(SIGTERM);
  EXPECT_EQ(started.Wait(), 0);
}

}  // namespace
}  // namespace embla::descriptors_test
