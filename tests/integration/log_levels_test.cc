// Servers change what they log while they run, and an audit log says who wanted it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "core/base/file.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "tests/testing/process_cluster.h"

namespace embla::log_levels_test {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::kAwaitMax;
using ::embla::testing::ProcessCluster;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST(LogLevels, ChangeWhileServersRunAndEndWithTheProcess) {
  const testing::TempDirectory directory;
  const std::string audit = directory.path() + "/audit.jsonl";
  const auto cluster = ProcessCluster::Start({.nodes = 2,
                                              .coordinator_flags = {"--audit-log", audit},
                                              .shard_flags = {"--memory-per-device", "64MiB"}});
  ASSERT_THAT(cluster, IsOk());
  const std::string first = (*cluster)->node_name(0);
  const std::string second = (*cluster)->node_name(1);
  const auto embla = [&](const std::string& words) {
    const auto [printed, code] = (*cluster)->Embla(words);
    EXPECT_EQ(code, 0) << words << ": " << printed;
    return printed;
  };
  const auto await_levels = [&](const std::string& pattern) {
    std::string levels;
    const bool is_so = AwaitFor(
        [&] {
          levels = embla("log ls");
          return ::testing::Matches(ContainsRegex(pattern))(levels);
        },
        kAwaitMax, "every server has its level");
    EXPECT_TRUE(is_so) << levels;
  };
  await_levels("coordinator +info\n" + first + " +info\n" + second + " +info\n");
  EXPECT_EQ(embla("log level " + second + " error"), "error: " + second + "\n");
  await_levels("coordinator +info\n" + first + " +info\n" + second + " +error\n");
  EXPECT_THAT(embla("log level warning"),
              HasSubstr("warning: coordinator, " + first + ", " + second));
  await_levels("coordinator +warning\n" + first + " +warning\n" + second + " +warning\n");

  ASSERT_THAT((*cluster)->StopNode(0), 0);
  ASSERT_THAT((*cluster)->RestartNode(0), IsOk());
  await_levels("coordinator +warning\n" + first + " +info\n" + second + " +warning\n");

  const auto lines = ReadFile(audit);
  ASSERT_THAT(lines, IsOk());
  EXPECT_THAT(*lines, AllOf(ContainsRegex("AdminService/SetLogLevel.*LOG_LEVEL_ERROR.*OK"),
                            HasSubstr("LOG_LEVEL_WARNING")));
}

}  // namespace
}  // namespace embla::log_levels_test
