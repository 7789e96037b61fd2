#include "server/console/console_json.h"

#include <fstream>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/console/console_fixture.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kHostile[] = "<img src=x onerror=\"alert(1)\">";

const absl::Time kNow = absl::FromUnixMillis(1'000'000);

ConsoleFacts Facts() {
  ConsoleFacts facts;
  facts.cluster.cluster_id = "cluster";
  facts.cluster.plan_version = PlanVersion{7};
  facts.plan = ConsolePlan({RowBlocks(1, "clicks", 1000, 4)});
  facts.now = kNow;
  facts.cluster.nodes_live = 1;
  facts.cluster.nodes_total = 2;
  facts.cluster.sessions_open = 5;
  facts.cluster.started = kNow - absl::Minutes(1);
  for (const NodeSpec& spec : facts.plan->nodes()) facts.nodes.emplace_back().spec = spec;
  NodeView& live = facts.nodes[0];
  live.state = NodeState::kLive;
  live.plan_version = PlanVersion{6};
  live.last_heartbeat = kNow - absl::Milliseconds(250);
  live.device_used_bytes = {100, 200};
  live.device_stopped = {"", kHostile};
  live.load.device_busy = {0.5, 0.25};
  live.load.calls = {{.method = "Lookup",
                      .per_second = 12.5,
                      .p50 = absl::Milliseconds(1),
                      .p99 = absl::Milliseconds(2)}};
  live.build.version = kHostile;
  facts.nodes[1].last_heartbeat = absl::InfinitePast();
  JobView job;
  job.job.id = 3;
  job.job.description = "reshard table clicks to 4 shards";
  job.job.state = JobState::kRunning;
  job.job.started = kNow - absl::Seconds(3);
  job.units_total = 100;
  job.job.units_moved = 25;
  facts.jobs.push_back(job);
  facts.sessions.push_back(
      {.session = SessionId{0xffff'ffff'ffff'ffff}, .trainer = "t0", .rank = Rank{1}, .ranks = 2});
  return facts;
}

MoveRun OneUnitOf(std::uint32_t table) {
  MoveRun run;
  run.table = TableId{table};
  run.granule_end = 1;
  return run;
}

Json Parse(const std::string& text) { return Json::parse(text); }

TEST(StateJson, TellsNodesDevicesJobsAndSessions) {
  const ConsoleFacts facts = Facts();
  const Json json = Parse(StateJson(facts, PlanSums(facts.plan), absl::FromUnixMillis(5)));
  EXPECT_EQ(json["role"], "leader");
  EXPECT_EQ(json["cluster"]["uptime_ms"], 60'000);
  EXPECT_EQ(json["cluster"]["time_unix_ms"], 5);
  const Json& node = json["nodes"][0];
  EXPECT_EQ(node["state"], "live");
  EXPECT_EQ(node["silent_ms"], 250);
  EXPECT_EQ(node["devices"][0]["used_bytes"], 100);
  EXPECT_EQ(node["devices"][0]["planned_bytes"], 250 * 32);
  EXPECT_EQ(node["devices"][0]["busy_ratio"], 0.5);
  EXPECT_EQ(node["calls"][0]["p99_ms"], 2);
  const Json& down = json["nodes"][1];
  EXPECT_EQ(down["state"], "down");
  EXPECT_TRUE(down["silent_ms"].is_null());
  EXPECT_TRUE(down["devices"][0]["used_bytes"].is_null());
  EXPECT_TRUE(down["devices"][0]["busy_ratio"].is_null());
  EXPECT_EQ(json["jobs"][0]["units_moved"], 25);
  EXPECT_TRUE(json["jobs"][0]["ended_unix_ms"].is_null());
  EXPECT_TRUE(json["jobs"][0]["seconds_left"].is_null());
  EXPECT_EQ(json["sessions"]["open"], 5);
  EXPECT_EQ(json["sessions"]["first"][0]["id"], "18446744073709551615");
  EXPECT_EQ(json["sessions"]["first"][0]["rank"], 1);
}

TEST(StateJson, TellsWordsOfNodesAsTheyAreButNotWithoutEnd) {
  ConsoleFacts facts = Facts();
  facts.nodes[0].failed_plan_version = PlanVersion{7};
  facts.nodes[0].failure = absl::InternalError(std::string(100'000, 'x') + "\xff");
  facts.nodes[0].device_stopped[0] = "not UTF-8: \xff";
  const std::string text = StateJson(facts, PlanSums(facts.plan), kNow);
  EXPECT_LT(text.size(), 10'000u);
  const Json node = Parse(text)["nodes"][0];
  EXPECT_EQ(node["devices"][1]["stopped"], kHostile);
  EXPECT_EQ(node["version"], kHostile);
  EXPECT_THAT(node["failure"].get<std::string>(), HasSubstr("xxx…"));
}

TEST(StateJson, AFullClusterIsBounded) {
  ConsoleFacts facts = Facts();
  for (int i = 0; i < 5000; ++i) facts.nodes.push_back(facts.nodes[0]);
  const std::string text = StateJson(facts, PlanSums(facts.plan), kNow);
  EXPECT_EQ(Parse(text)["nodes"].size(), kConsoleNodesMax);
  EXPECT_LT(text.size(), std::size_t{2} << 20);
}

TEST(TablesJson, IsAPageOfTheTablesThatMatchTheLargestFirst) {
  std::vector<TablePlan> tables;
  for (std::uint32_t i = 1; i <= 60; ++i) {
    tables.push_back(RowBlocks(i, (i % 2 == 0 ? "even-" : "odd-") + std::to_string(i), 100 * i, 2));
  }
  const PlanSums sums(ConsolePlan(std::move(tables)));
  const Json all = Parse(TablesJson(sums, {}));
  EXPECT_EQ(all["total"], 60);
  EXPECT_EQ(all["matched"], 60);
  EXPECT_EQ(all["tables"].size(), kConsoleTablesMax);
  EXPECT_EQ(all["tables"][0]["name"], "even-60");
  EXPECT_EQ(all["tables"][0]["placed"]["bytes"], 6000 * 32);
  const Json picture = all["tables"][0]["picture"];
  EXPECT_EQ(picture["rectangles"], Json::parse("[[0,3000,0,8,1,0],[3000,3000,0,8,1,1]]"));
  const Json some = Parse(TablesJson(sums, {.match = "odd-", .from = 29}));
  EXPECT_EQ(some["matched"], 30);
  ASSERT_EQ(some["tables"].size(), 1u);
  EXPECT_EQ(some["tables"][0]["name"], "odd-1");
  EXPECT_TRUE(Parse(TablesJson(sums, {.match = kHostile}))["tables"].empty());
}

TEST(TableJson, HasThePictureTheDevicesAndWhatTheJobMoves) {
  const PlanSums sums(ConsolePlan({RowBlocks(1, "clicks", 4096, 4), RowBlocks(2, "b", 4096, 1)}));
  JobView job;
  job.job.runs = {{.table = TableId{1},
                   .granule_begin = 1024,
                   .granule_end = 1124,
                   .from = {NodeId{1}, 1},
                   .to = {NodeId{2}, 0},
                   .bytes = 3200},
                  OneUnitOf(2)};
  const auto text = TableJson(sums, TableId{1}, 0, &job);
  ASSERT_THAT(text, IsOk());
  const Json json = Parse(*text);
  EXPECT_EQ(json["table"]["sharding"], "row_wise");
  EXPECT_EQ(json["picture"]["rectangles"].size(), 4u);
  EXPECT_TRUE(json["picture"]["is_exact"]);
  EXPECT_EQ(json["devices"].size(), 4u);
  EXPECT_EQ(json["devices"][0]["placed"]["rows"], 1024);
  ASSERT_EQ(json["moves"].size(), 1u);
  EXPECT_EQ(json["moves"][0]["row_begin"], 1024);
  EXPECT_EQ(json["moves"][0]["rows"], 100);
  EXPECT_EQ(json["moves"][0]["columns"], 8);
  EXPECT_EQ(json["moves"][0]["to"]["node"], 2);
  EXPECT_THAT(TableJson(sums, TableId{1}, 1, nullptr).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1 copies")));
  EXPECT_THAT(TableJson(sums, TableId{3}, 0, nullptr).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("table 3")));
}

TEST(TableJson, IsBoundedForHundredsOfThousandsOfUnits) {
  const PlanSums sums(ConsolePlan({RowBlocks(1, "clicks", 300'000, 300'000)}));
  JobView job;
  job.job.runs.assign(100'000, OneUnitOf(1));
  const auto text = TableJson(sums, TableId{1}, 0, &job);
  ASSERT_THAT(text, IsOk());
  EXPECT_LT(text->size(), std::size_t{256} << 10);
  EXPECT_EQ(Parse(*text)["moves"].size(), kConsoleRowsMax);
}

TEST(DeviceJson, HasTheTablesThere) {
  const PlanPtr plan = ConsolePlan({RowBlocks(1, "clicks", 1000, 4), RowBlocks(2, "b", 100, 1)});
  const auto text = DeviceJson(*plan, {NodeId{1}, 0});
  ASSERT_THAT(text, IsOk());
  const Json json = Parse(*text);
  EXPECT_EQ(json["total"], 2);
  EXPECT_EQ(json["tables"][0]["name"], "clicks");
  for (const DeviceId missing : {DeviceId{NodeId{1}, 2}, DeviceId{NodeId{3}, 0}}) {
    EXPECT_THAT(DeviceJson(*plan, missing).status(),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("no such device")));
  }
}

TEST(JobJson, LeavesOutMovesOfTablesThatAreGone) {
  JobView job;
  job.job.runs = {OneUnitOf(1), OneUnitOf(9)};
  const Json json = Parse(JobJson(job, *ConsolePlan({RowBlocks(1, "clicks", 1000, 4)})));
  EXPECT_EQ(json["moves_total"], 2);
  EXPECT_EQ(json["moves"].size(), 1u);
}

TEST(AuditJson, HasTheLastLinesTheNewestFirstAndNoneThatIsCutOff) {
  std::string lines = "\"who\": \"cut off\"}\n";
  for (int i = 0; i < 300; ++i) {
    lines += Json({{"time", std::to_string(i)},
                   {"who", kHostile},
                   {"what", {{"table_json", std::string(1000, 'x')}}},
                   {"result", "OK"},
                   {"job", i}})
                 .dump() +
             "\n";
  }
  lines += "{\"time\": \"half a li";
  const std::string text = AuditJson(lines);
  EXPECT_LT(text.size(), std::size_t{256} << 10);
  const Json calls = Parse(text)["calls"];
  ASSERT_EQ(calls.size(), kConsoleRowsMax);
  EXPECT_EQ(calls[0]["time"], "299");
  EXPECT_EQ(calls[0]["who"], kHostile);
  EXPECT_EQ(calls[0]["job"], 299);
  EXPECT_LT(calls[0]["what"].get<std::string>().size(), 510u);
  EXPECT_TRUE(Parse(AuditJson("no json\n[1]\n\xff\n"))["calls"].empty());
}

// Every name of `json`'s fields, at any depth.
void CollectNames(const Json& json, std::set<std::string>& names) {
  for (const auto& [name, value] : json.items()) {
    if (json.is_object()) names.insert(name);
    if (value.is_structured()) CollectNames(value, names);
  }
}

TEST(ConsoleDocuments, HaveNoFieldThatThePageOfTheFormatDoesNotList) {
  const ConsoleFacts facts = Facts();
  const PlanSums sums(facts.plan);
  JobView job = facts.jobs[0];
  job.job.runs = {OneUnitOf(1)};
  std::set<std::string> names;
  for (const std::string& text :
       {StateJson(facts, sums, kNow), StandbyJson({}, kNow), TablesJson(sums, {}),
        *TableJson(sums, TableId{1}, 0, &job), *DeviceJson(*facts.plan, {NodeId{1}, 0}),
        JobJson(job, *facts.plan), AuditJson("{\"time\": \"1\"}\n")}) {
    CollectNames(Parse(text), names);
  }
  EXPECT_GT(names.size(), 80u);
  std::ifstream file("docs/console.md");
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (const std::string& name : names) EXPECT_THAT(page, HasSubstr("`" + name + "`"));
}

}  // namespace
}  // namespace embla
