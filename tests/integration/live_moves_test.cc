// Units move between real servers, over real RPC, while trainers update and look up. A table that
// never moves gets the very same updates: at the end both have the same bits, state included.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/include/embla/client.h"
#include "core/base/failpoint.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/app/shard_process.h"
#include "server/rpc/coordinator_fixture.h"

namespace embla::live_moves_test {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;

using client::Client;
using client::FeatureGradient;
using client::FeatureLookup;

constexpr std::uint64_t kSeed = 20261122;
constexpr std::int64_t kRows = 6000;  // Ids that are trained.
constexpr std::uint32_t kDim = 16;
constexpr std::uint32_t kGranules = 48;
constexpr int kTrainers = 3;
// A ZCH table has as many buckets as the others have granules, and room for every id.
constexpr char kZch[] = R"(, "rows": 24576, "zch": {"buckets": 48, "policy": "lru"})";
constexpr char kDense[] = R"(, "rows": 6000, "row_granules": 48)";

// The ids that rows 0..kRows-1 stand for.
std::int64_t IdOf(std::int64_t row, bool is_zch) {
  return is_zch
             ? static_cast<std::int64_t>(static_cast<std::uint64_t>(row + 1) * 0x9e3779b97f4a7c15u)
             : row;
}
constexpr absl::Duration kWaitMax = absl::Minutes(3);

class LiveMovesTest : public CoordinatorFixture {
 protected:
  void SetUp() override {
    std::cout << "seed=" << kSeed << '\n';
    Start();
    // One after the other, so that n0 is the first node of every tiling.
    for (const char* const name : {"n0", "n1"}) {
      StartNode(name);
      ASSERT_TRUE(
          AwaitFor([&] { return host_->plan()->FindNode(std::string_view(name)) != nullptr; },
                   kWaitMax, "the node is in the plan"));
    }
  }

  void TearDown() override {
    nodes_.clear();
    CoordinatorFixture::TearDown();
  }

  void StartNode(const std::string& name) {
    ShardProcessOptions options;
    options.name = name;
    options.coordinator = server_->address();
    options.cluster_key = key_;
    options.devices.assign(2, {.kind = DeviceKind::kCpu, .memory_bytes = 64 << 20});
    options.threads_per_device = 1;
    options.mover.fold_interval = absl::Milliseconds(300);
    auto node = ShardProcess::Start(options);
    ASSERT_THAT(node, IsOk());
    nodes_.push_back(*std::move(node));
  }

  // `tables` of one spec. `more` is added to it: kDense or kZch.
  void Create(const std::vector<std::string>& tables, const std::string& optimizer,
              const std::string& placement, const std::string& more = kDense) {
    for (const std::string& name : tables) {
      v1::CreateTableRequest request;
      request.set_table_json(absl::StrCat(
          R"({"name": ")", name, R"(", "dim": )", kDim, R"(, "optimizer": )", optimizer,
          R"(, "init": {"kind": "uniform", "a": -1.0, "b": 1.0})", R"(, "seed": 5)", more, "}"));
      request.set_placement_json(placement);
      grpc::ClientContext context;
      v1::TableReply reply;
      const grpc::Status created = admin_->CreateTable(&context, request, &reply);
      ASSERT_THAT(created, IsOk());
    }
  }

  template <typename Answer>
  Answer Ask(std::function<Answer(Coordinator&, absl::Time)> question) {
    std::promise<Answer> answer;
    std::optional<Answer> found;
    host_->Post([&](Coordinator& coordinator,
                    absl::Time now) { found.emplace(question(coordinator, now)); },
                [&](const absl::Status& durable) {
                  EXPECT_THAT(durable, IsOk());
                  answer.set_value(*std::move(found));
                });
    return answer.get_future().get();
  }

  JobView StartJob(const JobRequest& request) {
    const auto started =
        Ask<absl::StatusOr<JobView>>([&request](Coordinator& coordinator, absl::Time now) {
          return coordinator.StartJob(request, now);
        });
    EXPECT_THAT(started, IsOk());
    return started.value_or(JobView());
  }

  bool HasEnded(std::uint64_t id) {
    const auto view = Ask<absl::StatusOr<JobView>>(
        [id](Coordinator& coordinator, absl::Time now) { return coordinator.GetJob(id, now); });
    return !view.ok() || IsOver(view->job.state);
  }

  // Returns the job when it is over.
  JobView AwaitJob(std::uint64_t id) {
    absl::StatusOr<JobView> view;
    const bool is_over = AwaitFor(
        [&] {
          view = Ask<absl::StatusOr<JobView>>([id](Coordinator& coordinator, absl::Time now) {
            return coordinator.GetJob(id, now);
          });
          return !view.ok() || IsOver(view->job.state);
        },
        kWaitMax, "the job is over");
    EXPECT_THAT(view, IsOk());
    if (!view.ok()) return {};
    EXPECT_TRUE(is_over) << view->job.description << ": " << view->job.units_moved << " of "
                         << view->units_total << " moved, waits for " << view->wait.what;
    return *view;
  }

  // Runs the job to its end.
  void Run(const JobGoal& goal) {
    const JobView view = AwaitJob(StartJob({.goal = goal}).job.id);
    ASSERT_EQ(view.job.state, JobState::kDone) << view.job.error;
    EXPECT_EQ(view.job.units_moved, view.units_total);
    std::cout << view.job.description << ": units=" << view.units_total
              << " bytes=" << view.job.bytes_moved << " pause p50=" << view.job.pauses.p50
              << " max=" << view.job.pauses.max << '\n';
  }

  void Undrain(const std::string& node) { StartJob({.goal = UndrainGoal{.node = node}}); }

  std::unique_ptr<Client> Connect(client::Transport transport = client::Transport::kAuto) {
    client::ConnectOptions options;
    options.transport = transport;
    options.coordinator = server_->address();
    options.timeout = absl::Seconds(60);
    auto client = Client::Connect(options);
    EXPECT_THAT(client, IsOk());
    return client.ok() ? *std::move(client) : nullptr;
  }

  // The sum over all nodes.
  double Sum(const std::string& metric) const {
    double sum = 0;
    for (const auto& node : nodes_) {
      std::istringstream text(node->metrics().Text());
      for (std::string name, value; text >> name >> value;) {
        if (name == metric) sum += std::stod(value);
        std::getline(text, value);
      }
    }
    return sum;
  }
  // While trainers go on: until more units were folded back than `before`, and none has a gate.
  bool AwaitFolded(double before) {
    return AwaitFor(
        [&] { return Sum("embla_units_folded_total") > before && Sum("embla_unit_gates") == 0; },
        kWaitMax, "units are folded back");
  }

  std::vector<std::unique_ptr<ShardProcess>> nodes_;
};

// Trains `tables` alike, on the rows whose id is `share` modulo kTrainers: the order of a row's
// updates is that of one trainer.
class Trainer {
 public:
  Trainer(std::unique_ptr<Client> client, std::vector<std::string> tables, int share, bool is_zch)
      : client_(std::move(client)),
        tables_(std::move(tables)),
        share_(share),
        is_zch_(is_zch),
        random_(kSeed + share) {
    thread_ = std::thread([this] { Run(); });
  }
  ~Trainer() { static_cast<void>(Stop()); }

  // The first error.
  absl::Status Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return error_;
  }
  int steps() const { return steps_; }

 private:
  void Run() {
    while (!stop_ && error_.ok()) {
      error_ = Step();
      if (error_.ok()) ++steps_;
    }
  }

  absl::Status Step() {
    std::vector<std::int64_t> ids(1 + random_() % 40);
    for (std::int64_t& id : ids) {
      const auto row = static_cast<std::int64_t>(random_() % (kRows / kTrainers));
      id = IdOf(share_ + kTrainers * row, is_zch_);
    }
    std::vector<float> rows(ids.size() * kDim);
    std::vector<float> gradients(ids.size() * kDim);
    std::uniform_real_distribution<float> any(-1, 1);
    for (float& gradient : gradients) gradient = any(random_);
    std::vector<FeatureGradient> features;
    for (const std::string& table : tables_) {
      const FeatureLookup lookup{.table = table, .ids = ids, .rows_out = rows};
      const absl::Status looked_up = client_->Lookup({&lookup, 1}, {});
      if (!looked_up.ok()) return looked_up;
      features.push_back({.table = table, .ids = ids, .gradients = gradients});
    }
    return client_->Update(features, {});
  }

  const std::unique_ptr<Client> client_;
  const std::vector<std::string> tables_;
  const int share_;
  const bool is_zch_;
  std::mt19937_64 random_;
  absl::Status error_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> steps_ = 0;
  std::thread thread_;
};

class Training {
 public:
  template <typename Connect>
  Training(Connect connect, const std::vector<std::string>& tables, bool is_zch = false) {
    for (int t = 0; t < kTrainers; ++t) {
      trainers_.push_back(std::make_unique<Trainer>(connect(), tables, t, is_zch));
    }
  }
  // Everybody has done `steps` more.
  bool HasProgressed(int steps, std::vector<int>& since) const {
    since.resize(trainers_.size(), 0);
    for (std::size_t t = 0; t < trainers_.size(); ++t) {
      if (trainers_[t]->steps() < since[t] + steps) return false;
    }
    for (std::size_t t = 0; t < trainers_.size(); ++t) since[t] = trainers_[t]->steps();
    return true;
  }
  void Stop() {
    for (const auto& trainer : trainers_) {
      const absl::Status status = trainer->Stop();
      EXPECT_THAT(status, IsOk());
    }
  }

 private:
  std::vector<std::unique_ptr<Trainer>> trainers_;
};

struct Content {
  std::vector<float> rows;
  std::vector<float> state;
};

// Describes the differences; empty: none.
std::string Difference(const Content& moved, const Content& still) {
  std::string text;
  int rows = 0;
  for (std::int64_t row = 0; row < kRows; ++row) {
    const auto begin = static_cast<std::size_t>(row * kDim);
    if (std::equal(moved.rows.begin() + begin, moved.rows.begin() + begin + kDim,
                   still.rows.begin() + begin)) {
      continue;
    }
    if (++rows > 20) continue;
    absl::StrAppend(&text, "row ", row, " granule ", row * kGranules / kRows, ": ",
                    moved.rows[begin], " is not ", still.rows[begin], "\n");
  }
  if (rows > 0) absl::StrAppend(&text, rows, " rows differ");
  if (moved.state != still.state) absl::StrAppend(&text, " the optimizer state differs");
  return text;
}

Content ContentOf(Client& client, const std::string& table) {
  std::vector<std::int64_t> ids(kRows);
  for (std::int64_t id = 0; id < kRows; ++id) ids[static_cast<std::size_t>(id)] = id;
  Content content;
  content.rows.resize(ids.size() * kDim);
  EXPECT_THAT(client.RefreshPlan(), IsOk());
  const absl::Status rows = client.ReadRows(table, ids, content.rows);
  EXPECT_THAT(rows, IsOk());
  const auto floats = client.StateFloatsPerRow(table);
  EXPECT_THAT(floats, IsOk());
  content.state.resize(ids.size() * floats.value_or(0));
  const absl::Status state = client.ReadState(table, ids, content.state);
  EXPECT_THAT(state, IsOk());
  return content;
}

// The weights of every id, also of one that has no row.
Content ContentOfZch(Client& client, const std::string& table) {
  std::vector<std::int64_t> ids(kRows);
  for (std::int64_t row = 0; row < kRows; ++row) {
    ids[static_cast<std::size_t>(row)] = IdOf(row, /*is_zch=*/true);
  }
  Content content;
  content.rows.resize(ids.size() * kDim);
  const FeatureLookup lookup{.table = table, .ids = ids, .rows_out = content.rows};
  const absl::Status status = client.Lookup({&lookup, 1}, {});
  EXPECT_THAT(status, IsOk());
  return content;
}

struct Case {
  std::string name;
  std::string optimizer;
  std::string placement;
  bool is_zch = false;
};

class LiveMovesOfTablesTest : public LiveMovesTest, public ::testing::WithParamInterface<Case> {};

TEST_P(LiveMovesOfTablesTest, LeaveTheSameBitsAsNoMoves) {
  const std::vector<std::string> tables = {"moved", "still"};
  const bool is_zch = GetParam().is_zch;
  Create(tables, GetParam().optimizer, GetParam().placement, is_zch ? kZch : kDense);
  Training training([this] { return Connect(); }, tables, is_zch);
  std::vector<int> since;
  ASSERT_TRUE(
      AwaitFor([&] { return training.HasProgressed(20, since); }, kWaitMax, "training goes on"));
  bool folds = true;
  struct Step {
    std::uint32_t begin, end;
    const char* node;
    std::uint32_t device;
  };
  // From wherever the granules are: both nodes send and receive, and units come back.
  for (const Step& step :
       {Step{0, 24, "n1", 0}, Step{0, 48, "n0", 1}, Step{0, 48, "n1", 1}, Step{7, 31, "n0", 0}}) {
    const double folded = Sum("embla_units_folded_total");
    Run(MoveGoal{.table = "moved",
                 .granule_begin = step.begin,
                 .granule_end = step.end,
                 .node = step.node,
                 .device = step.device});
    if (HasFatalFailure()) break;
    EXPECT_TRUE(
        AwaitFor([&] { return training.HasProgressed(20, since); }, kWaitMax, "training goes on"))
        << step.node;
    // The next moves find units that were folded back, or are about to be.
    EXPECT_TRUE(!folds || AwaitFolded(folded)) << Sum("embla_unit_gates") << " gates are left";
    folds = !folds;
  }
  training.Stop();
  const auto reader = Connect();
  const auto content = is_zch ? ContentOfZch : ContentOf;
  EXPECT_EQ(Difference(content(*reader, "moved"), content(*reader, "still")), "");
}

INSTANTIATE_TEST_SUITE_P(
    Tables, LiveMovesOfTablesTest,
    ::testing::Values(Case{"RowWiseAdagrad", R"({"kind": "rowwise_adagrad", "learning_rate": 0.1})",
                           R"({"sharding": "row_wise"})"},
                      Case{"RowWiseAdam", R"({"kind": "adam", "learning_rate": 0.1})",
                           R"({"sharding": "row_wise"})"},
                      Case{"GridShardAdagrad", R"({"kind": "adagrad", "learning_rate": 0.1})",
                           R"({"sharding": "grid_shard"})"},
                      Case{"ZchAdagrad", R"({"kind": "adagrad", "learning_rate": 0.1})",
                           R"({"sharding": "row_wise"})", /*is_zch=*/true},
                      Case{"TableRowWiseSgd", R"({"kind": "sgd", "learning_rate": 0.1})",
                           R"({"sharding": "table_row_wise"})"}),
    [](const auto& info) { return info.param.name; });

TEST_F(LiveMovesTest, ADrainedNodeHasNothingLeft) {
  Create({"a", "b"}, R"({"kind": "adam"})", R"({"sharding": "row_wise"})");
  Training training([this] { return Connect(); }, {"a", "b"});
  std::vector<int> since;
  ASSERT_TRUE(
      AwaitFor([&] { return training.HasProgressed(20, since); }, kWaitMax, "training goes on"));
  Run(DrainGoal{.node = "n0"});
  EXPECT_TRUE(
      AwaitFor([&] { return training.HasProgressed(20, since); }, kWaitMax, "training goes on"));
  training.Stop();
  const PlanPtr plan = host_->plan();
  for (const TablePlan& table : plan->tables()) {
    for (const Slice& slice : table.primary()) {
      EXPECT_EQ(plan->FindNode(slice.device.node)->name, "n1");
    }
  }
  const auto reader = Connect();
  EXPECT_EQ(Difference(ContentOf(*reader, "a"), ContentOf(*reader, "b")), "");
}

// Trainers have none, so that all that break are those between the nodes.
TEST_F(LiveMovesTest, ADrainEndsThoughSocketsBreak) {
  Create({"moved", "still"}, R"({"kind": "adagrad"})", R"({"sharding": "row_wise"})");
  Training training([this] { return Connect(client::Transport::kUnary); }, {"moved", "still"});
  std::vector<int> since;
  ASSERT_TRUE(
      AwaitFor([&] { return training.HasProgressed(5, since); }, kWaitMax, "training goes on"));
  std::mt19937_64 random(kSeed);
  const JobView started = StartJob({.goal = DrainGoal{.node = "n0"}, .bytes_per_second = 500'000});
  constexpr char kReceive[] = "frame_socket.receive";
  std::uint64_t broken = 0;
  for (bool is_over = false; !is_over;) {
    const std::uint64_t hit = 1 + random() % 20;
    const std::uint64_t until = FailpointUses(kReceive) + hit;
    SetFailpoint(kReceive, FailpointAction::kError, hit);
    ASSERT_TRUE(AwaitFor(
        [&] {
          is_over = HasEnded(started.job.id);
          return is_over || FailpointUses(kReceive) >= until;
        },
        kWaitMax, "a socket breaks"));
    broken += is_over ? 0 : 1;
  }
  ClearFailpoints();
  EXPECT_GE(broken, 3u);
  const JobView over = AwaitJob(started.job.id);
  EXPECT_EQ(over.job.state, JobState::kDone) << over.job.error;
  training.Stop();
  const auto reader = Connect();
  EXPECT_EQ(Difference(ContentOf(*reader, "moved"), ContentOf(*reader, "still")), "");
}

TEST_F(LiveMovesTest, AJobThatIsCancelledLeavesEverythingWhole) {
  Create({"moved", "still"}, R"({"kind": "adagrad"})", R"({"sharding": "row_wise"})");
  Training training([this] { return Connect(); }, {"moved", "still"});
  std::vector<int> since;
  for (int round = 0; round < 5; ++round) {
    // So slow that some units have moved and some have not.
    const JobView started = StartJob(
        {.goal = DrainGoal{.node = round % 2 == 0 ? "n0" : "n1"}, .bytes_per_second = 500'000});
    ASSERT_TRUE(
        AwaitFor([&] { return training.HasProgressed(5, since); }, kWaitMax, "training goes on"));
    const absl::StatusOr<JobView> cancelled =
        Ask<absl::StatusOr<JobView>>([&started](Coordinator& coordinator, absl::Time now) {
          return coordinator.ControlJob(started.job.id, JobControl::kCancel, now);
        });
    const JobView over = AwaitJob(started.job.id);
    if (cancelled.ok()) {
      EXPECT_EQ(over.job.state, JobState::kCancelled) << over.job.error;
    }
    Undrain(round % 2 == 0 ? "n0" : "n1");
  }
  EXPECT_TRUE(
      AwaitFor([&] { return training.HasProgressed(20, since); }, kWaitMax, "training goes on"));
  training.Stop();
  const auto reader = Connect();
  EXPECT_EQ(Difference(ContentOf(*reader, "moved"), ContentOf(*reader, "still")), "");
}

TEST_F(LiveMovesTest, AJobGoesOnWhenTheCoordinatorIsBack) {
  Create({"moved", "still"}, R"({"kind": "adagrad"})", R"({"sharding": "row_wise"})");
  Training training([this] { return Connect(); }, {"moved", "still"});
  std::vector<int> since;
  ASSERT_TRUE(
      AwaitFor([&] { return training.HasProgressed(5, since); }, kWaitMax, "training goes on"));
  const std::string address = server_->address();
  const JobView started = StartJob({.goal = DrainGoal{.node = "n0"}, .bytes_per_second = 500'000});
  for (int round = 0; round < 3; ++round) {
    Stop();
    ASSERT_TRUE(
        AwaitFor([&] { return training.HasProgressed(5, since); }, kWaitMax, "training goes on"));
    Start(address);
    ASSERT_TRUE(
        AwaitFor([&] { return training.HasProgressed(5, since); }, kWaitMax, "training goes on"));
  }
  const JobView over = AwaitJob(started.job.id);
  EXPECT_EQ(over.job.state, JobState::kDone) << over.job.error;
  training.Stop();
  const auto reader = Connect();
  EXPECT_EQ(Difference(ContentOf(*reader, "moved"), ContentOf(*reader, "still")), "");
}

}  // namespace
}  // namespace embla::live_moves_test
