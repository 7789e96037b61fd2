// embla doctor against real processes: nothing is found where nothing is wrong, and what is wrong
// is found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "nlohmann/json.hpp"
#include "tests/testing/process_cluster.h"

namespace embla::doctor_cluster_test {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::kAwaitMax;
using ::embla::testing::ProcessCluster;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Outcome {
  std::multiset<std::string> found = {};
  int code = -1;
};

// Runs `words` of the CLI, or what else a shell runs after them.
Outcome Doctor(const ProcessCluster& cluster, const std::string& words = "doctor --cluster") {
  const auto [printed, code] = cluster.Embla(words + " -o json");
  Outcome outcome{.code = code};
  // With findings that are errors an error follows the document.
  std::istringstream text(printed);
  nlohmann::json document;
  try {
    text >> document;
  } catch (const nlohmann::json::exception&) {
    ADD_FAILURE() << printed;
    return outcome;
  }
  for (const auto& finding : document["findings"]) outcome.found.insert(finding["check"]);
  return outcome;
}

absl::StatusOr<std::unique_ptr<ProcessCluster>> StartCluster(bool journals) {
  auto cluster = ProcessCluster::Start({.nodes = 2,
                                        .devices_per_node = 1,
                                        .shard_flags = {"--memory-per-device", "64MiB"},
                                        .journals = journals});
  if (!cluster.ok()) return cluster;
  const auto [printed, code] =
      (*cluster)->Embla("table create --name t --sharding row_wise --rows 1000 --dim 4");
  if (code != 0) return absl::InternalError(printed);
  return cluster;
}

TEST(Doctor, FindsNothingInAHealthyClusterAndTheNodeThatDied) {
  const auto cluster = StartCluster(true);
  ASSERT_THAT(cluster, IsOk());
  const Outcome healthy = Doctor(**cluster);
  EXPECT_THAT(healthy.found, IsEmpty());
  EXPECT_EQ(healthy.code, 0);
  EXPECT_EQ(Doctor(**cluster, "doctor --cluster --strict").code, 0);

  const auto [upgrade, code] = (*cluster)->Embla("cluster upgrade-check");
  EXPECT_EQ(code, 0) << upgrade;
  EXPECT_THAT(upgrade, HasSubstr("one process after the other"));

  (*cluster)->KillNode(1);
  Outcome ill;
  EXPECT_TRUE(AwaitFor(
      [&] {
        ill = Doctor(**cluster);
        return ill.code == 1;
      },
      kAwaitMax, "the node is missed"));
  EXPECT_THAT(ill.found, ElementsAre("node-dead"));
}

TEST(Doctor, FindsNodesThatKeepNothingAndCoordinatorsThatAreNotThere) {
  const auto cluster = StartCluster(false);
  ASSERT_THAT(cluster, IsOk());
  const Outcome outcome = Doctor(**cluster);
  EXPECT_THAT(outcome.found, ElementsAre("node-without-directory", "node-without-directory"));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(Doctor(**cluster, "doctor --cluster --strict").code, 1);
  const auto [upgrade, code] = (*cluster)->Embla("cluster upgrade-check");
  EXPECT_EQ(code, 5) << upgrade;
  EXPECT_THAT(upgrade, HasSubstr("not now: node node0: it has no data directory"));

  const Outcome one_of_two = Doctor(
      **cluster, absl::StrCat("cluster status >/dev/null; $EMBLA_BIN_DIR/embla doctor --cluster "
                              "--admin ",
                              (*cluster)->admin_address(), ",127.0.0.1:1"));
  EXPECT_EQ(one_of_two.found.count("coordinator-member"), 1u);
  EXPECT_EQ(one_of_two.found.count("coordinator-unreachable"), 0u);

  (*cluster)->KillCoordinator();
  const Outcome none = Doctor(**cluster);
  EXPECT_THAT(none.found, ElementsAre("coordinator-unreachable"));
  EXPECT_EQ(none.code, 1);
}

}  // namespace
}  // namespace embla::doctor_cluster_test
