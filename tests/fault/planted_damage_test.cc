// Tests of the chaos test: damage that is planted into a shard server is found, and nothing else.
#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/chaos_run.h"

namespace embla::fault::planted_damage_test {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

// Each shard server damages ten updates, from its second on. Where one is of a table with copies,
// reads may go to a copy that is whole; then it is `embla verify` that names the damage.
ChaosReport RunWith(const std::string& planted) {
  ChaosOptions options;
  options.faults = 0;
  options.shards = 2;
  options.planted = planted;
  options.directory = ::testing::TempDir() + "/chaos-XXXXXX";
  EXPECT_NE(::mkdtemp(options.directory.data()), nullptr);
  const ChaosReport report = ChaosRun(options).Run();
  std::filesystem::remove_all(options.directory);
  return report;
}

TEST(ChaosRun, FindsNothingWhereNothingIsDamaged) {
  const ChaosReport report = RunWith("");
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_GT(report.acknowledged, 0u);
}

TEST(ChaosRun, FindsAnUpdateThatIsAcknowledgedAndNotApplied) {
  const ChaosReport report = RunWith("update.lose=error@2");
  EXPECT_GT(report.lost + report.named_by_verify, 0);
  EXPECT_EQ(report.doubled, 0);
  EXPECT_THAT(report.findings, Not(IsEmpty()));
}

TEST(ChaosRun, FindsAnUpdateThatIsAppliedTwice) {
  const ChaosReport report = RunWith("update.double=error@2");
  EXPECT_EQ(report.lost, 0);
  EXPECT_GT(report.doubled + report.named_by_verify, 0);
  EXPECT_THAT(report.findings, Not(IsEmpty()));
}

}  // namespace
}  // namespace embla::fault::planted_damage_test
