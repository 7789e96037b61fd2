// Situations of a cluster, planted one by one, and what is said of an upgrade then.
#include "tools/embla/upgrade_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/build_version.h"
#include "core/plan/plan_json.h"
#include "server/journal/image_records.h"
#include "server/journal/journal_records.h"

namespace embla::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr std::array kFiles = {FileFormat{"journal", 2}, FileFormat{"state", 1}};
constexpr std::array kOtherFiles = {FileFormat{"journal", 3}, FileFormat{"state", 1}};
constexpr std::array kKnown = {
    ReleaseFormats{{0, 2, 0}, 2, kFiles}, ReleaseFormats{{0, 3, 0}, 2, kFiles},
    ReleaseFormats{{0, 4, 0}, 3, kFiles}, ReleaseFormats{{0, 5, 0}, 3, kOtherFiles}};

// A coordinator and two nodes of 0.2.0, with one table; nothing stands against an upgrade.
class World {
 public:
  World() {
    facts.status.set_version("0.2.0+abc");
    facts.status.set_protocol_version(2);
    facts.status.set_plan_version(7);
    std::vector<NodeSpec> specs;
    for (std::uint32_t n = 1; n <= 2; ++n) {
      NodeSpec& spec = specs.emplace_back();
      spec.id = NodeId{n};
      spec.name = "n" + std::to_string(n);
      spec.address = "10.0.0.1:708" + std::to_string(n);
      spec.devices.assign(1, DeviceSpec{DeviceKind::kCpu, 1 << 20});
      v1::NodeStatus& status = *facts.nodes.add_nodes();
      status.set_node_json(NodeSpecToJson(spec));
      status.set_live(true);
      status.set_plan_version(7);
      status.set_version("0.2.0+abc");
      status.set_protocol_version(2);
      status.set_directory(v1::NodeStatus::DIRECTORY_KEPT);
    }
    TablePlan table;
    table.spec.id = TableId{1};
    table.spec.name = "clicks";
    table.spec.rows = 100;
    table.spec.dim = 4;
    table.spec.SetDefaults();
    table.replicas = {{Slice{0, 100, 0, 4, {NodeId{2}, 0}}}};
    facts.plan = Plan(PlanVersion{7}, "c", specs, {table});
  }

  // The node that has the table.
  v1::NodeStatus& node() { return *facts.nodes.mutable_nodes(1); }
  void RunEverywhere(const std::string& version, std::uint32_t protocol) {
    facts.status.set_version(version);
    facts.status.set_protocol_version(protocol);
    for (v1::NodeStatus& node : *facts.nodes.mutable_nodes()) {
      node.set_version(version);
      node.set_protocol_version(protocol);
    }
  }
  v1::Job& AddJob(v1::JobState state) {
    v1::Job& job = *facts.jobs.add_jobs();
    job.set_id(5);
    job.set_description("reshard table clicks to 4 shards");
    job.set_state(state);
    job.set_units_open(3);
    return job;
  }
  UpgradeVerdict Check(const std::string& to = "0.2.1") const {
    return CheckUpgrade(facts, *ParseVersion(to), kKnown);
  }

  ClusterFacts facts;
};

TEST(UpgradeCheck, OneAfterTheOtherTheCoordinatorFirst) {
  const UpgradeVerdict verdict = World().Check();
  EXPECT_EQ(verdict.path, UpgradePath::kRolling);
  EXPECT_THAT(verdict.issues, IsEmpty());
  EXPECT_THAT(verdict.steps, ElementsAre(StartsWith("embla cluster backup"),
                                         StartsWith("the coordinator: "), StartsWith("node n1: "),
                                         StartsWith("node n2: "), StartsWith("trainers")));
}

TEST(UpgradeCheck, TheWayBackEndsWithTheCoordinator) {
  World world;
  world.RunEverywhere("0.2.3+abc", 2);
  const UpgradeVerdict verdict = world.Check("0.2.1");
  EXPECT_EQ(verdict.path, UpgradePath::kRolling);
  EXPECT_THAT(verdict.issues, IsEmpty());
  ASSERT_EQ(verdict.steps.size(), 5u);
  EXPECT_THAT(verdict.steps[3], StartsWith("the coordinator: "));
}

TEST(UpgradeCheck, WhatIsDoneIsNotDoneAgain) {
  World world;
  world.facts.status.set_version("0.2.1+def");
  world.facts.nodes.mutable_nodes(0)->set_version("0.2.1+def");
  EXPECT_THAT(world.Check().steps, ElementsAre(StartsWith("embla cluster backup"),
                                               StartsWith("node n2: "), StartsWith("trainers")));
}

TEST(UpgradeCheck, AnotherSeriesOfTheSameFormatsIsRolledOut) {
  EXPECT_EQ(World().Check("0.3.0").path, UpgradePath::kRolling);
  EXPECT_THAT(World().Check("0.3.0").issues, IsEmpty());
}

TEST(UpgradeCheck, AnotherProtocolNeedsAStop) {
  const UpgradeVerdict verdict = World().Check("0.4.0");
  EXPECT_EQ(verdict.path, UpgradePath::kStopped);
  EXPECT_THAT(verdict.issues, IsEmpty());
  EXPECT_THAT(verdict.steps[1], HasSubstr("stop the trainers"));
}

TEST(UpgradeCheck, AnotherFormatIsRefusedForEachProgram) {
  World world;
  world.RunEverywhere("0.4.1", 3);
  const UpgradeVerdict verdict = world.Check("0.5.0");
  EXPECT_EQ(verdict.path, UpgradePath::kImpossible);
  ASSERT_EQ(verdict.issues.size(), 3u);
  EXPECT_EQ(verdict.issues[1].where, "node n1");
  EXPECT_EQ(verdict.issues[1].what, "journal has format 2, and 0.5.0 reads 3");
  EXPECT_THAT(verdict.steps, IsEmpty());
}

TEST(UpgradeCheck, AVersionThatNobodyKnowsIsRefused) {
  const UpgradeVerdict to = World().Check("0.6.0");
  EXPECT_EQ(to.path, UpgradePath::kImpossible);
  ASSERT_EQ(to.issues.size(), 1u);
  EXPECT_THAT(to.issues[0].next, HasSubstr("`embla` of 0.6.0"));

  World world;
  world.node().set_version("0.6.0");
  const UpgradeVerdict from = world.Check();
  EXPECT_EQ(from.path, UpgradePath::kImpossible);
  ASSERT_EQ(from.issues.size(), 1u);
  EXPECT_EQ(from.issues[0].where, "node n2");
}

using Plant = std::function<void(World&)>;
struct Situation {
  Plant plant;
  std::string where;
  std::string what;
};

std::map<std::string, Situation> Situations() {
  const auto running = [](v1::JobState state) { return [state](World& w) { w.AddJob(state); }; };
  return {
      {"dead", {[](World& w) { w.node().set_live(false); }, "node n2", "not there"}},
      {"behind", {[](World& w) { w.node().set_plan_version(6); }, "node n2", "plan 6 of 7"}},
      {"failing",
       {[](World& w) {
          w.node().set_failed_plan_version(7);
          w.node().set_failure("no room");
        },
        "node n2", "no room"}},
      {"stopped", {[](World& w) { w.node().add_device_stopped("Xid 79"); }, "node n2", "Xid 79"}},
      {"forgetful",
       {[](World& w) { w.node().set_directory(v1::NodeStatus::DIRECTORY_NONE); }, "node n2",
        "its rows are gone"}},
      {"unknown_directory",
       {[](World& w) { w.node().clear_directory(); }, "node n2", "nobody knows"}},
      {"running", {running(v1::JOB_STATE_RUNNING), "job 5", "3 units are on the move"}},
      {"queued", {running(v1::JOB_STATE_QUEUED), "job 5", "reshard"}},
      {"cancelling", {running(v1::JOB_STATE_CANCELLING), "job 5", "reshard"}},
      {"pausing", {running(v1::JOB_STATE_PAUSED), "job 5", "3 units"}}};
}

TEST(UpgradeCheck, EachSituationIsTheOnlyIssue) {
  for (const auto& [name, situation] : Situations()) {
    SCOPED_TRACE(name);
    World world;
    situation.plant(world);
    const UpgradeVerdict verdict = world.Check();
    EXPECT_EQ(verdict.path, UpgradePath::kRolling);
    ASSERT_EQ(verdict.issues.size(), 1u);
    EXPECT_EQ(verdict.issues[0].where, situation.where);
    EXPECT_THAT(verdict.issues[0].what, HasSubstr(situation.what));
  }
}

TEST(UpgradeCheck, WhatRestsOrHasNoRowsDoesNotStandAgainstIt) {
  World world;
  world.AddJob(v1::JOB_STATE_DONE);
  world.AddJob(v1::JOB_STATE_PAUSED).set_units_open(0);
  world.facts.nodes.mutable_nodes(0)->set_directory(v1::NodeStatus::DIRECTORY_NONE);
  EXPECT_THAT(world.Check().issues, IsEmpty());
}

TEST(Versions, HaveThreeNumbersAndMaybeACommit) {
  EXPECT_EQ(ParseVersion("0.2.1+4fdbd01"), (Version{0, 2, 1}));
  EXPECT_EQ(ParseVersion("1.0.0"), (Version{1, 0, 0}));
  for (const char* const wrong : {"", "0.2", "0.2.x", "0.2.1.4", "v0.2.1"}) {
    EXPECT_FALSE(ParseVersion(wrong).has_value()) << wrong;
  }
  EXPECT_TRUE((Version{1, 0, 0}.IsOneSeriesWith({1, 4, 2})));
  EXPECT_FALSE((Version{0, 2, 0}.IsOneSeriesWith({0, 3, 0})));
}

TEST(KnownReleases, HaveThisBuild) {
  const ReleaseFormats* const own = FormatsOf(*ParseVersion(BuildVersion()), KnownReleases());
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(own->protocol, kProtocolVersion);
  const auto format = [&](std::string_view file) {
    const auto found = std::ranges::find(own->files, file, &FileFormat::file);
    return found == own->files.end() ? 0 : found->format;
  };
  EXPECT_EQ(format("journal"), kJournalFormat);
  EXPECT_EQ(format("snapshots"), kSnapshotFormat);
}

}  // namespace
}  // namespace embla::cli
