// The picture of `embla top`, and the loop around it.
#include "tools/embla/top_view.h"

#include <cmath>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/include/embla/testing/unimplemented_client.h"
#include "core/base/testing/status_matchers.h"
#include "core/plan/plan_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/embla/top_cmd.h"

namespace embla::cli {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

v1::NodeStatus& AddNode(LoadFacts& facts, const std::string& name, std::size_t devices) {
  NodeSpec spec;
  spec.id = NodeId{static_cast<std::uint32_t>(facts.nodes.nodes_size() + 1)};
  spec.name = name;
  spec.address = "127.0.0.1:7000";
  spec.devices.assign(devices, DeviceSpec{DeviceKind::kCpu, std::int64_t{1} << 20});
  v1::NodeStatus& node = *facts.nodes.add_nodes();
  node.set_node_json(NodeSpecToJson(spec));
  node.set_live(true);
  for (std::size_t d = 0; d < devices; ++d) {
    node.add_device_used_bytes(1 << 19);
    node.add_device_busy(0.25 * static_cast<double>(d + 1));
  }
  return node;
}

void AddCalls(v1::NodeStatus& node, const std::string& method, double per_second, double p99_ms) {
  v1::CallLoad& calls = *node.add_calls();
  calls.set_method(method);
  calls.set_per_second(per_second);
  calls.set_p99_ms(p99_ms);
}

void AddTable(v1::NodeStatus& node, const std::string& table, double looked_up, double updated) {
  v1::TableLoad& load = *node.add_tables();
  load.set_table(table);
  load.set_rows_looked_up(looked_up);
  load.set_rows_updated(updated);
}

LoadFacts TwoNodes() {
  LoadFacts facts;
  facts.status.set_cluster_id("abc");
  facts.status.set_plan_version(7);
  facts.status.set_nodes_live(2);
  facts.status.set_nodes_total(2);
  facts.status.set_tables(2);
  v1::NodeStatus& quiet = AddNode(facts, "quiet", 1);
  AddCalls(quiet, "Lookup", 0.4, 1.5);
  AddTable(quiet, "users", 10, 5);
  v1::NodeStatus& busy = AddNode(facts, "busy", 3);
  AddCalls(busy, "Lookup", 1200, 2.5);
  AddCalls(busy, "Update", 300, 8);
  AddTable(busy, "users", 20, 5);
  AddTable(busy, "clicks", 150'000, 0);
  return facts;
}

std::string TextOf(const LoadFacts& facts) {
  std::string text;
  for (const LoadLine& line : FitLines(LoadText(facts), 1000, 1000)) {
    absl::StrAppend(&text, line.is_alarm ? "! " : "", line.text, "\n");
  }
  return text;
}

TEST(LoadText, HasNodesWithDevicesTablesAndTheBusiestFirst) {
  const std::string text = TextOf(TwoNodes());
  EXPECT_THAT(text, HasSubstr("cluster abc, plan 7, 2 of 2 nodes, 2 tables"));
  EXPECT_THAT(text, HasSubstr("lookups 1,200/s, updates 300/s, memory 2.00 MiB of 4.00 MiB"));
  EXPECT_THAT(text, ContainsRegex("busy +live +75 % +1.50 MiB +3.00 MiB +1,200 +300 +2.5 ms +8.0"));
  EXPECT_THAT(text, ContainsRegex("  cpu 2 +75 % +512 KiB +1.00 MiB\n"));
  EXPECT_THAT(text, ContainsRegex("quiet +live +25 % +512 KiB +1.00 MiB +0.4 +0 +1.5 ms +-\n"));
  EXPECT_THAT(text, ContainsRegex("clicks +150,000 +0\nusers +30 +10\n"));
  EXPECT_LT(text.find("busy "), text.find("quiet "));
  EXPECT_THAT(text, Not(HasSubstr("job"))) << "there is none";
}

TEST(LoadText, NodesThatAreDownComeFirstAndAreAlarms) {
  LoadFacts facts = TwoNodes();
  facts.nodes.mutable_nodes(0)->set_live(false);
  facts.status.set_nodes_live(1);
  const std::string text = TextOf(facts);
  EXPECT_THAT(text, AllOf(HasSubstr("! cluster abc"), ContainsRegex("! quiet +down")));
  EXPECT_LT(text.find("quiet "), text.find("busy "));
  facts.nodes.mutable_nodes(1)->add_device_stopped("it burns");
  EXPECT_THAT(TextOf(facts), ContainsRegex("! busy +stopped(.|\n)*!   cpu 0 +stopped"));
}

TEST(LoadText, JobsAreThoseThatAreOnOrElseTheNewest) {
  LoadFacts facts = TwoNodes();
  const auto add = [&](std::uint64_t id, v1::JobState state, const std::string& what) {
    v1::Job& job = *facts.jobs.add_jobs();
    job.set_id(id);
    job.set_state(state);
    job.set_description(what);
    job.set_units_total(8);
    job.set_units_moved(id);
    job.set_pause_p99_ms(4.25);
    job.set_seconds_left(12);
  };
  add(3, v1::JOB_STATE_DONE, "reshard table users");
  add(2, v1::JOB_STATE_FAILED, "drain node n1");
  EXPECT_THAT(TextOf(facts), AllOf(ContainsRegex("\n +3 +done +3/8 .* 4.2 ms .*reshard"),
                                   Not(HasSubstr("drain"))));
  add(1, v1::JOB_STATE_RUNNING, "rebalance");
  facts.jobs.mutable_jobs(2)->set_waits_for("node n1 is down");
  EXPECT_THAT(TextOf(facts), ContainsRegex("! +1 +running +1/8 .*12 s .*rebalance +node n1"));
}

TEST(LoadText, NumbersThatNodesMakeUpAreNoTrouble) {
  LoadFacts facts = TwoNodes();
  v1::NodeStatus& node = *facts.nodes.mutable_nodes(0);
  AddTable(node, "a\x1b[2Jb", std::nan(""), -1e300);
  node.set_device_busy(0, std::nan(""));
  node.add_device_busy(7);
  EXPECT_THAT(TextOf(facts), ContainsRegex("a\\?\\[2Jb +0 +0"));
  EXPECT_THAT(TextOf(facts), Not(HasSubstr("\x1b")));
}

TEST(LoadView, HasTheSameAsJson) {
  const nlohmann::ordered_json view = LoadView(TwoNodes());
  EXPECT_EQ(view["nodes"][0]["name"], "busy");
  EXPECT_EQ(view["nodes"][0]["devices"][2]["busy_ratio"], 0.75);
  EXPECT_EQ(view["nodes"][0]["calls"][1]["per_second"], 300);
  EXPECT_EQ(view["tables"][1]["rows_looked_up_per_second"], 30);
  EXPECT_THAT(view["jobs"], IsEmpty());
}

std::vector<std::string> Fitted(const LoadSections& sections, std::size_t rows,
                                std::size_t columns = 80) {
  std::vector<std::string> texts;
  for (const LoadLine& line : FitLines(sections, rows, columns)) texts.push_back(line.text);
  return texts;
}

TEST(FitLines, LongSectionsLeaveRoomToOthersAndSayWhatIsLeftOut) {
  const LoadSections sections = {{{"nodes"}, {"n1"}, {"n2"}, {"n3"}, {"n4"}, {"n5"}},
                                 {{"jobs"}, {"j1"}}};
  EXPECT_THAT(Fitted(sections, 100),
              ElementsAre("nodes", "n1", "n2", "n3", "n4", "n5", "", "jobs", "j1"));
  EXPECT_THAT(Fitted(sections, 7),
              ElementsAre("nodes", "n1", "n2", "  and 3 more", "", "jobs", "j1"));
  EXPECT_THAT(Fitted(sections, 9, 2),
              ElementsAre("no", "n1", "n2", "n3", "n4", "n5", "", "jo", "j1"));
  for (std::size_t rows = 0; rows < 12; ++rows) {
    EXPECT_THAT(Fitted(sections, rows), SizeIs(::testing::Le(rows)));
  }
}

TEST(TopVerb, GoesOnWithTheLastFiguresWhenNobodyAnswers) {
  client::testing::FakeAdmin admin;
  bool is_there = true;
  admin.On<v1::GetClusterStatusRequest, v1::ClusterStatus>([&](const auto&, auto& reply) {
    reply = TwoNodes().status;
    return is_there ? absl::OkStatus() : absl::UnavailableError("nobody listens");
  });
  admin.On<v1::ListNodesRequest, v1::ListNodesReply>([](const auto&, auto& reply) {
    reply = TwoNodes().nodes;
    return absl::OkStatus();
  });
  admin.On<v1::ListJobsRequest, v1::ListJobsReply>(
      [](const auto&, auto&) { return absl::OkStatus(); });
  std::ostringstream out;
  int looks = 0;
  const TopPause pause = [&](const std::function<void()>&) {
    is_there = false;
    return ++looks < 2;
  };
  ASSERT_THAT(TopVerb(admin, pause, {.out = out}), IsOk());
  EXPECT_THAT(out.str(), ContainsRegex("busy(.|\n)*no answer: nobody listens(.|\n)*busy"));
  EXPECT_THAT(TopVerb(admin, pause, {.out = out}),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("nobody")));
}

}  // namespace
}  // namespace embla::cli
