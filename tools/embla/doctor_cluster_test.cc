// Each mistake of a cluster, planted alone, is the only finding.
#include "tools/embla/doctor_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/plan/plan_json.h"

namespace embla::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kNow = 1'700'000'000'000;

// Two nodes on two machines, over TLS, with one table on both; nothing is wrong.
class World {
 public:
  World() {
    facts.status.set_version("0.2.0+abc");
    facts.status.set_now_unix_ms(kNow);
    facts.status.set_tables(1);
    facts.status.set_nodes_live(2);
    facts.asked = absl::FromUnixMillis(kNow - 100);
    facts.answered = absl::FromUnixMillis(kNow + 100);
    facts.has_tls = true;
    facts.admin_address = "10.0.0.1:7071";
    for (std::uint32_t n = 1; n <= 2; ++n) {
      NodeSpec& spec = specs_.emplace_back();
      spec.id = NodeId{n};
      spec.name = "n" + std::to_string(n);
      spec.address = "10.0.0.1" + std::to_string(n) + ":7080";
      spec.devices.assign(2, DeviceSpec{DeviceKind::kCpu, 4 * kGiB});
      v1::NodeStatus& status = *facts.nodes.add_nodes();
      status.set_live(true);
      status.set_version("0.2.0+abc");
      status.set_last_heartbeat_unix_ms(kNow - 53'500);
      status.set_memory_id("machine" + std::to_string(n));
      status.set_memory_bytes(16 * kGiB);
      status.set_directory(v1::NodeStatus::DIRECTORY_KEPT);
      status.set_clock_ahead_ms(-3);
      for (int device = 0; device < 2; ++device) status.add_device_used_bytes(kGiB);
    }
    table_.spec.id = TableId{1};
    table_.spec.name = "clicks";
    table_.spec.rows = 100;
    table_.spec.dim = 4;
    table_.spec.SetDefaults();
    table_.replicas = {{Slice{0, 50, 0, 4, {NodeId{1}, 0}}, Slice{50, 100, 0, 4, {NodeId{2}, 0}}}};
  }

  v1::NodeStatus& node() { return *facts.nodes.mutable_nodes(1); }
  NodeSpec& spec(std::size_t n = 1) { return specs_[n]; }
  TablePlan& table() { return table_; }
  v1::Job& AddJob(v1::JobState state) {
    v1::Job& job = *facts.jobs.add_jobs();
    job.set_id(static_cast<std::uint64_t>(facts.jobs.jobs_size()));
    job.set_description("drain node n2");
    job.set_state(state);
    return job;
  }

  Report Examine() {
    for (int n = 0; n < 2; ++n) {
      facts.nodes.mutable_nodes(n)->set_node_json(NodeSpecToJson(specs_[n]));
    }
    facts.plan = Plan(PlanVersion{3}, "c", specs_, {table_});
    Report report;
    CheckCluster(facts, report);
    return report;
  }
  std::vector<std::string> Found() {
    std::vector<std::string> names;
    const Report report = Examine();
    for (const Finding& finding : report.findings()) names.emplace_back(finding.check.name);
    return names;
  }

  ClusterFacts facts;

 private:
  std::vector<NodeSpec> specs_;
  TablePlan table_;
};

using Plant = std::function<void(World&)>;

std::map<std::string, Plant> NodeMistakes() {
  return {{"address-loopback", [](World& w) { w.spec().address = "127.0.0.1:7080"; }},
          {"address-twice", [](World& w) { w.spec().address = "10.0.0.11:7080"; }},
          {"clock-apart", [](World& w) { w.node().set_clock_ahead_ms(-3'600'000); }},
          {"device-full", [](World& w) { w.node().set_device_used_bytes(0, 4 * kGiB - 1); }},
          {"device-stopped",
           [](World& w) {
             w.node().add_device_stopped("");
             w.node().add_device_stopped("Xid 79");
           }},
          {"memory-promised",
           [](World& w) {
             w.node().set_memory_id("machine1");
             w.facts.nodes.mutable_nodes(0)->set_memory_bytes(15 * kGiB);
             w.node().set_memory_bytes(15 * kGiB);
           }},
          {"node-behind",
           [](World& w) {
             w.node().set_failed_plan_version(4);
             w.node().set_failure("no room");
           }},
          {"node-dead", [](World& w) { w.node().set_live(false); }},
          {"node-drained", [](World& w) { w.node().set_drained(true); }},
          {"node-left-over",
           [](World& w) {
             w.node().set_live(false);
             w.node().set_drained(true);
           }},
          {"node-without-directory",
           [](World& w) { w.node().set_directory(v1::NodeStatus::DIRECTORY_NONE); }},
          {"versions-differ", [](World& w) { w.node().set_version("0.2.1+def"); }}};
}

std::map<std::string, Plant> OtherMistakes() {
  return {
      {"job-failed",
       [](World& w) {
         w.AddJob(v1::JOB_STATE_RUNNING);
         w.AddJob(v1::JOB_STATE_FAILED);
         w.AddJob(v1::JOB_STATE_FAILED);  // An older one.
       }},
      {"job-paused", [](World& w) { w.AddJob(v1::JOB_STATE_PAUSED).set_waits_for("resume"); }},
      {"job-waits",
       [](World& w) { w.AddJob(v1::JOB_STATE_RUNNING).set_waits_for("node n2, which is down"); }},
      {"plaintext", [](World& w) { w.facts.has_tls = false; }},
      {"tables-aside", [](World& w) { w.facts.status.set_tables_aside(2); }}};
}

std::map<std::string, Plant> AllMistakes() {
  std::map<std::string, Plant> all = NodeMistakes();
  all.merge(OtherMistakes());
  return all;
}

TEST(ClusterChecks, FindNothingWhereNothingIsWrong) { EXPECT_THAT(World().Found(), IsEmpty()); }

TEST(ClusterChecks, AreAllPlanted) {
  std::set<std::string> planted = {
      "no-nodes", "table-durability",  // Below.
      "coordinator-member",
      "coordinator-unreachable"};  // tests/integration/doctor_cluster_test.cc.
  for (const auto& [name, plant] : AllMistakes()) planted.insert(name);
  for (const DoctorCheck& check : ClusterChecks()) {
    EXPECT_EQ(planted.erase(std::string(check.name)), 1u) << check.name;
  }
  EXPECT_THAT(planted, IsEmpty());
}

class ClusterMistake : public ::testing::TestWithParam<std::string> {};

TEST_P(ClusterMistake, IsTheOnlyFinding) {
  World world;
  AllMistakes().at(GetParam())(world);
  EXPECT_THAT(world.Found(), ElementsAre(GetParam()));
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& [name, plant] : AllMistakes()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Each, ClusterMistake, ::testing::ValuesIn(Names()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(ClusterChecks, TablesAskForWhatNodesCannotGive) {
  World world;
  world.node().set_directory(v1::NodeStatus::DIRECTORY_NONE);
  world.table().spec.durability = TableDurability::kSynced;
  EXPECT_THAT(world.Found(), ElementsAre("node-without-directory", "table-durability"));
}

TEST(ClusterChecks, WithoutNodesEachIsNamedAndThatThereIsNone) {
  World world;
  world.facts.status.set_nodes_live(0);
  for (v1::NodeStatus& node : *world.facts.nodes.mutable_nodes()) node.set_live(false);
  EXPECT_THAT(world.Found(), ElementsAre("node-dead", "node-dead", "no-nodes"));
}

TEST(ClusterChecks, TheCoordinatorsClockIsComparedWithThisMachines) {
  World world;
  world.facts.status.set_now_unix_ms(kNow - 3'600'000);
  EXPECT_THAT(world.Found(), ElementsAre("clock-apart"));
  // An answer that took long says nothing.
  world.facts.asked = absl::FromUnixMillis(kNow - 3'600'000);
  EXPECT_THAT(world.Found(), IsEmpty());
}

TEST(ClusterChecks, SayNothingOfWhatOldBuildsDoNotTell) {
  World world;
  world.facts.status.clear_now_unix_ms();
  for (v1::NodeStatus& node : *world.facts.nodes.mutable_nodes()) {
    node.clear_memory_id();
    node.clear_memory_bytes();
    node.clear_directory();
    node.clear_clock_ahead_ms();
  }
  EXPECT_THAT(world.Found(), IsEmpty());
}

TEST(ClusterChecks, PlaintextOnLoopbackIsForTheFirstTry) {
  World world;
  world.facts.has_tls = false;
  world.facts.admin_address = "127.0.0.1:7071";
  world.spec(0).address = "127.0.0.1:7080";
  world.spec(1).address = "unix:/run/n2";
  EXPECT_THAT(world.Found(), IsEmpty());
}

TEST(ClusterChecks, SayWhoWhatAndHowLong) {
  World world;
  world.node().set_live(false);
  const Report report = world.Examine();
  ASSERT_EQ(report.findings().size(), 1u);
  EXPECT_EQ(report.findings()[0].where, "node n2");
  EXPECT_THAT(report.findings()[0].what,
              HasSubstr("at 10.0.0.12:7080; it was heard of last 53s ago"));
}

}  // namespace
}  // namespace embla::cli
