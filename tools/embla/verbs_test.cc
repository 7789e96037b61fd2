// The verbs against a coordinator of a few lines.
#include <algorithm>
#include <future>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "client/include/embla/testing/unimplemented_client.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "core/plan/plan_json.h"
#include "core/plan/table_options.h"
#include "core/planner/cluster/auto_placement.h"
#include "core/planner/placement.h"
#include "core/planner/placement_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/embla/cluster_cmd.h"
#include "tools/embla/exit_code.h"
#include "tools/embla/job_cmd.h"
#include "tools/embla/node_cmd.h"
#include "tools/embla/plan_cmd.h"
#include "tools/embla/plan_view.h"
#include "tools/embla/table_cmd.h"
#include "tools/embla/table_create_cmd.h"

namespace embla::cli {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr CreateFlags kLooksOften{.look_every = absl::Milliseconds(1)};

// Two nodes of two devices; keeps its tables in a vector.
class FakeAdmin final : public client::testing::FakeAdmin {
 public:
  FakeAdmin() {
    for (std::uint32_t n = 0; n < 2; ++n) {
      NodeSpec node;
      node.id = NodeId{n + 1};
      node.name = "n" + std::to_string(n);
      node.address = "127.0.0.1:700" + std::to_string(n);
      node.devices.assign(2, DeviceSpec{DeviceKind::kCpu, std::int64_t{1} << 20});
      nodes_.push_back(node);
    }
    job_.set_state(v1::JOB_STATE_RUNNING);
    job_.set_seconds_left(-1);
    AnswerForTheCluster();
    AnswerForTables();
    AnswerForPlans();
    AnswerForJobs();
  }

  // From two threads: one that creates tables, and one that looks what that waits for.
  using client::testing::FakeAdmin::Call;
  absl::Status Call(const google::protobuf::Message& request,
                    google::protobuf::Message& reply) override {
    const bool creates = request.GetDescriptor() == v1::CreateTablesRequest::descriptor();
    if (creates && waits_for_look_) looked_.get_future().wait();
    MutexLock lock(mu_);
    const bool is_about_jobs = reply.GetDescriptor() == v1::JobReply::descriptor();
    if (is_about_jobs && calls_away_ > 0 && calls_away_-- > 0) {
      return absl::UnavailableError("it has just started");
    }
    const absl::Status status = client::testing::FakeAdmin::Call(request, reply);
    const bool looks = request.GetDescriptor() == v1::ListNodesRequest::descriptor();
    if (looks && waits_for_look_ && ++looks_ == 2) looked_.set_value();
    return status;
  }

  // Creations last until somebody has looked twice at the nodes, the live one of which has
  // installed the plan or (`is_behind`) has not.
  void WaitForLook(bool is_behind) {
    waits_for_look_ = true;
    is_behind_ = is_behind;
  }
  bool if_not_exists() const { return if_not_exists_; }  // Flag of the last creation.
  // Applies to tables that are made from now on.
  void LeaveOut(std::vector<std::string> nodes) { left_out_ = std::move(nodes); }
  // Devices of the first node, for these reasons.
  void Stop(std::vector<std::string> reasons) { stopped_ = std::move(reasons); }
  void BeginAs(v1::JobState state) { job_.set_state(state); }
  void EndAs(v1::JobState state, const std::string& error) {
    end_ = state;
    job_.set_error(error);
  }
  // The next calls about jobs, so many, fail.
  void BeAwayFor(int calls) { calls_away_ = calls; }
  const v1::StartJobRequest& asked() const { return asked_; }
  std::vector<TablePlan>& tables() { return tables_; }

 private:
  void AnswerForTheCluster() {
    On<v1::GetClusterStatusRequest, v1::ClusterStatus>([this](const auto&, auto& reply) {
      reply.set_cluster_id("abc");
      reply.set_plan_version(version_);
      reply.set_nodes_live(1);
      reply.set_nodes_total(2);
      reply.set_started_unix_ms(1000);
      reply.set_version("0.1.0");
      return absl::OkStatus();
    });
    On<v1::ListNodesRequest, v1::ListNodesReply>([this](const auto&, auto& reply) {
      v1::NodeStatus& live = *reply.add_nodes();
      live.set_node_json(NodeSpecToJson(nodes_[0]));
      live.set_live(true);
      live.set_plan_version(is_behind_ ? 0 : version_);
      live.set_version("0.1.0");
      live.set_last_heartbeat_unix_ms(100'000);
      for (int device = 0; device < 2; ++device) live.add_device_used_bytes(1024);
      for (const std::string& reason : stopped_) live.add_device_stopped(reason);
      reply.add_nodes()->set_node_json(NodeSpecToJson(nodes_[1]));
      return absl::OkStatus();
    });
    On<v1::ForgetNodeRequest, v1::ForgetNodeReply>([](const auto& request, auto& reply) {
      v1::LostRows& lost = *reply.add_lost();
      lost.set_table("clicks");
      lost.set_units(12);
      lost.set_rows(500);
      lost.set_bytes(4096);
      EXPECT_TRUE(request.dry_run() || request.lose_rows());
      if (request.dry_run()) return absl::OkStatus();
      reply.mutable_job()->set_id(8);
      reply.mutable_job()->set_description("forget node n1 with its rows");
      return absl::OkStatus();
    });
  }

  template <typename Request>
  absl::Status Place(const Request& request, v1::TableReply& reply) {
    TableSpec spec = *TableSpecFromJson(request.table_json());
    spec.id = TableId{static_cast<std::uint32_t>(tables_.size() + 1)};
    spec.SetDefaults();
    const auto table = planner::PlaceOrChoose(
        spec, *PlacementRequestFromJson(request.placement_json()), nodes_, tables_);
    if (!table.ok()) return table.status();
    reply.set_table_plan_json(TablePlanToJson(*table));
    reply.set_plan_version(version_);
    return absl::OkStatus();
  }

  void AnswerForTables() {
    On<v1::PlanTableRequest, v1::TableReply>(
        [this](const auto& request, auto& reply) { return Place(request, reply); });
    On<v1::CreateTablesRequest, v1::CreateTablesReply>(
        [this](const auto& request, auto& reply) -> absl::Status {
          if_not_exists_ = request.if_not_exists();
          const std::vector<TablePlan> before = tables_;
          for (const v1::CreateTableRequest& asked : request.tables()) {
            const std::string name = TableSpecFromJson(asked.table_json())->name;
            if (std::ranges::count(tables_, name, [](const auto& t) { return t.spec.name; }) > 0) {
              reply.add_existed(name);
              continue;
            }
            v1::TableReply placed;
            if (const absl::Status status = Place(asked, placed); !status.ok()) {
              tables_ = before;
              return status;
            }
            tables_.push_back(*TablePlanFromJson(placed.table_plan_json()));
          }
          reply.set_plan_version(++version_);
          for (const std::string& node : left_out_) reply.add_left_out(node);
          return absl::OkStatus();
        });
    On<v1::DropTableRequest, v1::DropTableReply>(
        [this](const auto& request, auto& reply) -> absl::Status {
          const auto dropped = std::erase_if(
              tables_, [&](const TablePlan& table) { return table.spec.name == request.name(); });
          if (dropped == 0) return absl::NotFoundError(request.name());
          reply.set_plan_version(++version_);
          return absl::OkStatus();
        });
    On<v1::SetTableRequest, v1::TableReply>(
        [this](const auto& request, auto& reply) -> absl::Status {
          for (TablePlan& table : tables_) {
            if (table.spec.name != request.name()) continue;
            EMBLA_RETURN_IF_ERROR(
                SetTableOptions({request.values().begin(), request.values().end()}, &table.spec));
            reply.set_table_plan_json(TablePlanToJson(table));
            reply.set_plan_version(++version_);
            return absl::OkStatus();
          }
          return absl::NotFoundError(request.name());
        });
  }

  void AnswerForPlans() {
    On<v1::GetClusterPlanRequest, v1::Plan>([this](const auto&, auto& reply) {
      reply.set_json(PlanToJson(Plan(PlanVersion{version_}, "abc", nodes_, tables_)));
      return absl::OkStatus();
    });
    On<v1::GetPlanAtRequest, v1::Plan>([this](const auto& request, auto& reply) {
      reply.set_json(PlanToJson(Plan(PlanVersion{request.version()}, "abc", nodes_, {})));
      return absl::OkStatus();
    });
    On<v1::GetPlanHistoryRequest, v1::PlanHistory>([](const auto& request, auto& reply) {
      const auto add = [&](std::uint64_t version, std::int64_t unix_ms, const char* cause) {
        if (request.limit() != 0 && reply.changes_size() >= static_cast<int>(request.limit()))
          return;
        v1::PlanChange& change = *reply.add_changes();
        change.set_version(version);
        change.set_unix_ms(unix_ms);
        change.set_cause(cause);
      };
      add(3, 7000, "table clicks set");
      add(2, 5000, "node n1 joined");
      return absl::OkStatus();
    });
  }

  // A job of four units that gets on by one at each look.
  void AnswerForJobs() {
    On<v1::StartJobRequest, v1::JobReply>([this](const auto& request, auto& reply) {
      asked_ = request;
      job_.set_id(request.dry_run() ? 0 : 7);
      job_.set_description("reshard table clicks to 3 shards");
      job_.set_units_total(4);
      job_.set_bytes_total(4096);
      AddMoveAndRoom();
      *reply.mutable_job() = job_;
      return absl::OkStatus();
    });
    On<v1::ListJobsRequest, v1::ListJobsReply>([this](const auto&, auto& reply) {
      *reply.add_jobs() = job_;
      return absl::OkStatus();
    });
    On<v1::GetJobRequest, v1::JobReply>([this](const auto& request, auto& reply) -> absl::Status {
      if (request.id() != job_.id()) return absl::NotFoundError("there is no such job");
      if (job_.units_moved() < job_.units_total()) job_.set_units_moved(job_.units_moved() + 1);
      if (job_.units_moved() == job_.units_total()) job_.set_state(end_);
      *reply.mutable_job() = job_;
      return absl::OkStatus();
    });
    On<v1::ControlJobRequest, v1::JobReply>([this](const auto& request, auto& reply) {
      job_.set_state(request.action() == v1::ControlJobRequest::ACTION_PAUSE
                         ? v1::JOB_STATE_PAUSED
                         : v1::JOB_STATE_RUNNING);
      *reply.mutable_job() = job_;
      return absl::OkStatus();
    });
  }

  void AddMoveAndRoom() {
    job_.clear_moves();
    v1::PlannedMove& move = *job_.add_moves();
    move.set_table("clicks");
    move.set_row_end(250);
    move.set_column_end(16);
    move.set_from_node("n0");
    move.set_to_node("n1");
    move.set_to_device(1);
    move.set_bytes(4096);
    job_.clear_rooms();
    v1::DeviceRoom& room = *job_.add_rooms();
    room.set_node("n1");
    room.set_device(1);
    room.set_memory_bytes(1 << 20);
    room.set_used_bytes(1 << 18);
    room.set_peak_bytes(1 << 19);
  }

  v1::StartJobRequest asked_;
  v1::Job job_;
  v1::JobState end_ = v1::JOB_STATE_DONE;
  std::vector<NodeSpec> nodes_;
  std::vector<TablePlan> tables_;
  std::uint64_t version_ = 1;
  std::vector<std::string> stopped_;
  std::vector<std::string> left_out_;
  bool if_not_exists_ = false;
  bool waits_for_look_ = false;
  bool is_behind_ = false;
  int calls_away_ = 0;
  int looks_ = 0;
  std::promise<void> looked_;
  Mutex mu_;  // Held by each call.
};

class VerbsTest : public ::testing::Test {
 protected:
  static std::vector<TableRequest> Clicks(std::int64_t rows = 1000) {
    TableRequest request;
    request.spec.name = "clicks";
    request.spec.rows = rows;
    request.spec.dim = 8;
    request.placement.sharding = ShardingType::kRowWise;
    return {request};
  }
  static std::vector<TableRequest> Named(const std::vector<std::string>& names) {
    std::vector<TableRequest> requests;
    for (const std::string& name : names) requests.emplace_back(Clicks(100)[0]).spec.name = name;
    return requests;
  }
  void Create() { ASSERT_THAT(TableCreateVerb(admin_, Clicks(), {}, text_), IsOk()); }
  // Returns the output since the last call.
  std::string Printed() {
    const std::string printed = out_.str();
    out_.str("");
    return printed;
  }

  FakeAdmin admin_;
  std::ostringstream out_;
  const Output text_{false, out_};
  const Output json_{true, out_};
};

TEST_F(VerbsTest, ClusterStatus) {
  ASSERT_THAT(ClusterStatusVerb(admin_, text_), IsOk());
  EXPECT_THAT(Printed(), HasSubstr("nodes         1 live of 2\n"));
  ASSERT_THAT(ClusterStatusVerb(admin_, json_), IsOk());
  EXPECT_EQ(Json::parse(Printed())["nodes_live"], 1);
}

TEST_F(VerbsTest, ProgressOnATerminalIsOneLineThatIsDrawnOver) {
  const v1::StartJobRequest request = client::ReshardRequest("clicks", 3);
  const Output terminal{false, out_, {.redraws = true, .columns = 60}};
  ASSERT_THAT(JobStartVerb(
                  admin_, request, true, [] {}, terminal),
              IsOk());
  const std::string drawn = Printed();
  // The job's description, and the end.
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), '\n'), 2) << drawn;
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), '\r'), 4) << drawn;
  EXPECT_THAT(drawn, HasSubstr("\r[########################] 4/4 units"));
}

TEST_F(VerbsTest, NodeListShowsTheDeadToo) {
  const absl::Time now = absl::FromUnixMillis(100'250);
  ASSERT_THAT(NodeListVerb(admin_, now, text_), IsOk());
  EXPECT_EQ(Printed(),
            "node  state  address         devices      used    memory  plan  heartbeat   version\n"
            "n0    live   127.0.0.1:7000  2 cpu    2.00 KiB  2.00 MiB     1  250 ms ago  0.1.0\n"
            "n1    dead   127.0.0.1:7001  2 cpu         0 B  2.00 MiB     0  never       -\n");
  ASSERT_THAT(NodeListVerb(admin_, now, json_), IsOk());
  const Json view = Json::parse(Printed());
  EXPECT_EQ(view[0]["devices"][1]["used_bytes"], 1024);
  EXPECT_EQ(view[0]["last_heartbeat"], "1970-01-01T00:01:40.000Z");
  EXPECT_EQ(view[1]["last_heartbeat"], nullptr);
}

TEST_F(VerbsTest, NodeListSaysWhichDeviceHasStopped) {
  admin_.Stop({"", "GPU 1 has stopped"});
  const absl::Time now = absl::FromUnixMillis(100'250);
  ASSERT_THAT(NodeListVerb(admin_, now, text_), IsOk());
  EXPECT_THAT(Printed(), HasSubstr("n0    live, device 1 has      127.0.0.1:7000"));
  ASSERT_THAT(NodeListVerb(admin_, now, json_), IsOk());
  EXPECT_EQ(Json::parse(Printed())[0]["devices"][1]["stopped"], "GPU 1 has stopped");
}

TEST_F(VerbsTest, CreateShowsHowTheTableWasCut) {
  ASSERT_THAT(TableCreateVerb(admin_, Clicks(), {}, text_), IsOk());
  const std::string printed = Printed();
  EXPECT_THAT(printed, HasSubstr("created clicks: 1,000 rows x 8 columns fp32"));
  EXPECT_THAT(printed, HasSubstr("row_wise: 4 slices on 4 devices of 2 nodes"));
}

TEST_F(VerbsTest, CreateMakesAllTablesOfAFileByOneChange) {
  ASSERT_THAT(TableCreateVerb(admin_, Named({"clicks", "users", "items"}), {}, text_), IsOk());
  const std::string printed = Printed();
  EXPECT_THAT(printed, HasSubstr("created users: "));
  EXPECT_THAT(printed, HasSubstr("created 3 tables in plan 2\n"));
  EXPECT_FALSE(admin_.if_not_exists());
}

TEST_F(VerbsTest, CreateSaysOnceWhatItWaitsFor) {
  admin_.WaitForLook(true);
  ASSERT_THAT(TableCreateVerb(admin_, Named({"clicks", "users"}), kLooksOften, text_), IsOk());
  EXPECT_THAT(Printed(), StartsWith("waiting for 1 node to allocate 2 tables\ncreated clicks: "));
}

TEST_F(VerbsTest, CreateThatIsQueuedWaitsForTheCoordinator) {
  admin_.WaitForLook(false);
  ASSERT_THAT(TableCreateVerb(admin_, Clicks(), kLooksOften, text_), IsOk());
  EXPECT_THAT(Printed(), StartsWith("waiting for the coordinator to place 1 table\ncreated "));
}

TEST_F(VerbsTest, CreateOnATerminalDrawsOneLine) {
  const Output terminal{false, out_, {.redraws = true, .columns = 60}};
  admin_.WaitForLook(true);
  ASSERT_THAT(TableCreateVerb(admin_, Clicks(), kLooksOften, terminal), IsOk());
  EXPECT_THAT(Printed(), StartsWith("\rwaiting for 1 node to allocate 1 table\x1b[K\ncreated "));
}

TEST_F(VerbsTest, CreateIfNotExistsSaysWhatExisted) {
  Create();
  Printed();
  const std::vector<TableRequest> requests = Named({"clicks", "users"});
  ASSERT_THAT(TableCreateVerb(admin_, requests, {.if_not_exists = true}, text_), IsOk());
  EXPECT_TRUE(admin_.if_not_exists());
  const std::string printed = Printed();
  EXPECT_THAT(printed, HasSubstr("exists clicks: "));
  EXPECT_THAT(printed, HasSubstr("created 1 table in plan 3, 1 existed\n"));
  ASSERT_THAT(TableCreateVerb(admin_, requests, {.if_not_exists = true}, json_), IsOk());
  EXPECT_EQ(Json::parse(Printed())[1]["existed"], true);
}

TEST_F(VerbsTest, CreateOfHundredsOnlyCountsThem) {
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back("t" + std::to_string(i));
  ASSERT_THAT(TableCreateVerb(admin_, Named(names), {}, text_), IsOk());
  EXPECT_EQ(Printed(), "created 100 tables in plan 2\n");
}

TEST_F(VerbsTest, CreateSaysHowMuchRoomAZchTableGot) {
  std::vector<TableRequest> requests = Clicks();
  requests[0].spec.zch.emplace().buckets = 16;
  ASSERT_THAT(TableCreateVerb(admin_, requests, {}, text_), IsOk());
  EXPECT_THAT(Printed(), HasSubstr("note: asked for room for 1,000 ids, made is room for 1,024: a "
                                   "multiple of 64 x 16 buckets"));
  requests[0].spec.name = "exact";
  requests[0].spec.rows = 1024;
  ASSERT_THAT(TableCreateVerb(admin_, requests, {}, text_), IsOk());
  EXPECT_THAT(Printed(), Not(HasSubstr("note:")));
}

TEST_F(VerbsTest, CreateSaysWhichNodesItLeftOut) {
  admin_.LeaveOut({"node n2: down"});
  ASSERT_THAT(TableCreateVerb(admin_, Clicks(), {}, text_), IsOk());
  EXPECT_THAT(out_.str(), HasSubstr("warning: node n2: down; it has nothing of this table"));
}

TEST_F(VerbsTest, CreateThatDoesNotFitIsRefused) {
  const absl::Status status = TableCreateVerb(admin_, Clicks(1'000'000), {}, text_);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kRefused) << status;
}

TEST_F(VerbsTest, ListAndDescribe) {
  Create();
  Printed();
  ASSERT_THAT(TableListVerb(admin_, false, text_), IsOk());
  EXPECT_THAT(Printed(), HasSubstr("clicks  1,000    8  fp32   rowwise_adagrad  row_wise"));
  ASSERT_THAT(TableDescribeVerb(admin_, "clicks", text_), IsOk());
  EXPECT_THAT(Printed(), HasSubstr("optimizer.learning_rate  "));
  ASSERT_THAT(TableDescribeVerb(admin_, "clicks", json_), IsOk());
  const Json view = Json::parse(Printed());
  EXPECT_EQ(view["spec"]["dim"], 8);
  EXPECT_EQ(view["dim"], 8);  // Beside it, what plan show has of a table.
  EXPECT_EQ(view["slices"].size(), 4u);
}

TEST_F(VerbsTest, TablesThatAreKeptAsideAreListedApart) {
  Create();
  Printed();
  admin_.tables().front().aside = true;
  ASSERT_THAT(TableListVerb(admin_, false, text_), IsOk());
  EXPECT_THAT(Printed(), HasSubstr("1 more are kept aside: embla table ls --aside"));
  ASSERT_THAT(TableListVerb(admin_, true, text_), IsOk());
  EXPECT_THAT(Printed(), HasSubstr("clicks (1)"));
  ASSERT_THAT(TableListVerb(admin_, true, json_), IsOk());
  EXPECT_EQ(Json::parse(Printed())[0]["id"], 1);
}

TEST_F(VerbsTest, UnknownTableIsNotFoundAndListsTheOthers) {
  Create();
  const absl::Status status = PlanShowVerb(admin_, "click", text_);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kNotFound);
  EXPECT_THAT(Message(status), HasSubstr("there are clicks"));
}

TEST_F(VerbsTest, SetChangesHyperParameters) {
  Create();
  Printed();
  ASSERT_THAT(TableSetVerb(admin_, "clicks", {"learning_rate=0.5", "durability=synced"}, json_),
              IsOk());
  const Json view = Json::parse(Printed());
  EXPECT_EQ(view["spec"]["optimizer"]["learning_rate"], 0.5);
  EXPECT_EQ(view["spec"]["durability"], "synced");
  EXPECT_EQ(view["plan_version"], 3);
}

TEST_F(VerbsTest, SetRefusesWhatIsNoAssignment) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"learning_rate"}, {"=1"}, {"eps=1", "eps=2"}}) {
    EXPECT_EQ(ExitCodeOf(TableSetVerb(admin_, "clicks", words, text_)), ExitCode::kUsage);
  }
}

TEST_F(VerbsTest, DropAsksUnlessYes) {
  Create();
  std::istringstream no("y\n");
  EXPECT_EQ(ExitCodeOf(TableDropVerb(admin_, "clicks", false, no, text_)), ExitCode::kError);
  EXPECT_THAT(Printed(), HasSubstr("Drop clicks with its 1,000 rows?"));
  std::istringstream closed;
  EXPECT_THAT(TableDropVerb(admin_, "clicks", false, closed, text_), Not(IsOk()));
  ASSERT_THAT(PlanShowVerb(admin_, "clicks", text_), IsOk());

  std::istringstream unread("yes\n");
  EXPECT_EQ(ExitCodeOf(TableDropVerb(admin_, "clicks", false, unread, json_)), ExitCode::kUsage);
  std::istringstream yes("yes\n");
  EXPECT_THAT(TableDropVerb(admin_, "clicks", false, yes, text_), IsOk());
  EXPECT_EQ(ExitCodeOf(TableDropVerb(admin_, "clicks", true, yes, text_)), ExitCode::kNotFound);
}

TEST_F(VerbsTest, PlanTableOnTheLiveClusterCreatesNothing) {
  ASSERT_THAT(PlanTableVerb(admin_, Clicks(), text_), IsOk());
  EXPECT_THAT(Printed(), HasSubstr("4 slices on 4 devices of 2 nodes"));
  ASSERT_THAT(PlanTableVerb(admin_, Clicks(), json_), IsOk());
  EXPECT_EQ(Json::parse(Printed())["tables"][0]["slices"].size(), 4u);
  ASSERT_THAT(TableListVerb(admin_, false, json_), IsOk());
  EXPECT_EQ(Printed(), "[]\n");
}

// The classic trap: row_wise split inside each machine only would put 200 M rows on each.
TEST_F(VerbsTest, PlanTableOfflineCutsRowWiseOverAllDevicesOfAllNodes) {
  const auto requests = Clicks(1'600'000'000);
  ASSERT_THAT(PlanTableOfflineVerb(requests, {.nodes = 2, .devices_per_node = 8}, json_), IsOk());
  const Json view = Json::parse(Printed());
  const Json& slices = view["tables"][0]["slices"];
  ASSERT_EQ(slices.size(), 16u);
  for (const Json& slice : slices) EXPECT_EQ(slice["rows"], 100'000'000);
}

TEST_F(VerbsTest, PlanTableOfflineChecksTheStatedNodes) {
  for (const StatedNodes& stated :
       {StatedNodes{}, StatedNodes{.nodes = 1, .devices_per_node = 0},
        StatedNodes{.nodes = 1'000'000}, StatedNodes{.nodes = 1, .device_memory_bytes = 0}}) {
    EXPECT_EQ(ExitCodeOf(PlanTableOfflineVerb(Clicks(), stated, text_)), ExitCode::kUsage);
  }
}

TEST(ExitCode, TellsWhatToDo) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), ExitCode::kOk);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("")), ExitCode::kError);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("")), ExitCode::kUsage);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), ExitCode::kUnavailable);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("")), ExitCode::kNotFound);
  EXPECT_EQ(ExitCodeOf(absl::AlreadyExistsError("")), ExitCode::kRefused);
  EXPECT_EQ(ExitCodeOf(absl::ResourceExhaustedError("")), ExitCode::kRefused);
}

TEST(NodeForgetVerb, ShowsWhatIsLostAndNeedsTheWord) {
  FakeAdmin admin;
  std::ostringstream out;
  const Output text{.json = false, .out = out};
  const absl::Status refused = NodeForgetVerb(
      admin, "n1", false, false, [] {}, text);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(out.str(), HasSubstr("clicks"));
  EXPECT_THAT(out.str(), HasSubstr("500"));
  ASSERT_THAT(NodeForgetVerb(
                  admin, "n1", true, false, [] {}, text),
              IsOk());
  EXPECT_THAT(out.str(), HasSubstr("job 8: forget node n1 with its rows"));
  std::ostringstream json;
  ASSERT_THAT(NodeForgetVerb(
                  admin, "n1", true, false, [] {}, Output{.json = true, .out = json}),
              IsOk());
  EXPECT_EQ(Json::parse(json.str())["lost"][0]["rows"], 500);
}

TEST(JobVerbs, ADryRunShowsMovesAndMemory) {
  FakeAdmin admin;
  std::ostringstream text;
  JobFlags flags{.table = "clicks", .shards = 3, .rate = "1KiB/s", .dry_run = true};
  const auto request = ReshardRequest(flags);
  ASSERT_THAT(request, IsOk());
  ASSERT_THAT(JobStartVerb(admin, *request, false, [] {}, {.out = text}), IsOk());
  EXPECT_EQ(admin.asked().reshard().shards(), 3u);
  EXPECT_EQ(admin.asked().bytes_per_second(), 1024u);
  EXPECT_THAT(text.str(), HasSubstr("4 units, 4.00 KiB, about 4 s"));
  EXPECT_THAT(text.str(), HasSubstr("n0:0    n1:1    4.00 KiB"));
  EXPECT_THAT(text.str(), HasSubstr("512 KiB"));  // The peak.
}

TEST(JobVerbs, AQueuedJobIsNotOver) {
  EXPECT_FALSE(client::IsOver(v1::JOB_STATE_QUEUED));
  FakeAdmin admin;
  admin.BeginAs(v1::JOB_STATE_QUEUED);
  std::ostringstream out;
  const Output text{.json = false, .out = out};
  ASSERT_THAT(JobStartVerb(
                  admin, {}, /*wait=*/false, [] {}, text),
              IsOk());
  EXPECT_THAT(out.str(), HasSubstr("shards, queued; embla job watch 7"));
}

TEST(JobVerbs, WaitShowsProgressUntilTheEnd) {
  FakeAdmin admin;
  std::ostringstream text;
  int looks = 0;
  const auto pause = [&looks] { ++looks; };
  ASSERT_THAT(JobStartVerb(admin, client::ReshardRequest("clicks", 3), true, pause, {.out = text}),
              IsOk());
  EXPECT_EQ(looks, 3);
  EXPECT_THAT(text.str(), HasSubstr("job 7: reshard table clicks to 3 shards"));
  EXPECT_THAT(text.str(), HasSubstr("2/4 units"));
  EXPECT_THAT(text.str(), HasSubstr("done"));
}

TEST(JobVerbs, WaitOutlastsACoordinatorThatIsAway) {
  FakeAdmin admin;
  std::ostringstream text;
  admin.BeAwayFor(2);
  int looks = 0;
  // Away once more while the job runs.
  const auto pause = [&] { admin.BeAwayFor(++looks == 3 ? 4 : 0); };
  ASSERT_THAT(JobStartVerb(admin, client::DrainRequest("n1"), true, pause, {.out = text}), IsOk());
  EXPECT_THAT(text.str(), HasSubstr("it has just started"));
  EXPECT_THAT(text.str(), HasSubstr("done"));
  admin.BeAwayFor(1);
  const absl::Status at_once = JobStartVerb(admin, {}, false, pause, {.out = text});
  EXPECT_EQ(ExitCodeOf(at_once), ExitCode::kUnavailable);
  admin.BeAwayFor(1 << 20);
  const absl::Status for_ever = JobStartVerb(admin, {}, true, [] {}, {.out = text});
  EXPECT_EQ(ExitCodeOf(for_ever), ExitCode::kUnavailable);
}

TEST(JobVerbs, AFailedJobIsAnError) {
  FakeAdmin admin;
  admin.EndAs(v1::JOB_STATE_FAILED, "node n1 refused it");
  std::ostringstream text;
  const absl::Status status = JobStartVerb(admin, {}, true, [] {}, {.out = text});
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kError);
  EXPECT_THAT(Message(status), HasSubstr("node n1 refused it"));
}

TEST(JobVerbs, ListShowAndControl) {
  FakeAdmin admin;
  std::ostringstream text;
  ASSERT_THAT(JobStartVerb(admin, {}, false, [] {}, {.out = text}), IsOk());
  ASSERT_THAT(JobListVerb(admin, {.out = text}), IsOk());
  ASSERT_THAT(JobControlVerb(admin, 7, v1::ControlJobRequest::ACTION_PAUSE, {.out = text}), IsOk());
  EXPECT_THAT(text.str(), HasSubstr("paused"));
  std::ostringstream json;
  ASSERT_THAT(JobShowVerb(admin, 7, {.json = true, .out = json}), IsOk());
  const Json document = Json::parse(json.str());
  EXPECT_EQ(document["id"], 7);
  EXPECT_EQ(document["moves"][0]["to"], "n1:1");
  EXPECT_EQ(JobShowVerb(admin, 9, {.out = text}).code(), absl::StatusCode::kNotFound);
}

TEST(JobVerbs, FlagsAreChecked) {
  EXPECT_THAT(MoveRequest({.table = "t", .granules = "7-3", .to = "n1"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("7-3")));
  EXPECT_THAT(MoveRequest({.table = "t", .granules = "x", .to = "n1"}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(MoveRequest({.table = "t", .granules = "1-2", .to = "n1:x"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("n1:x")));
  EXPECT_THAT(MoveRequest({.table = "t", .granules = "1-2", .to = "n1", .rate = "fast"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("fast")));
  const auto request = MoveRequest({.table = "t", .granules = "1-2", .to = "n1:3"});
  ASSERT_THAT(request, IsOk());
  EXPECT_EQ(request->move().granule_begin(), 1u);
  EXPECT_EQ(request->move().granule_end(), 3u);
  EXPECT_EQ(request->move().node(), "n1");
  EXPECT_EQ(request->move().device(), 3u);
}

}  // namespace
}  // namespace embla::cli
