// A link is cut amid a reshard, while a reader goes by the plan from before it: the one between a
// node and the coordinator, between the two ends of the moves, or between trainers and a node.
// No lookup misses an acknowledged update, however long nobody hears of anybody.
//
// EMBLA_LINK_CUTS: how many links are cut. EMBLA_TEST_SEED: when.
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/include/embla/client.h"
#include "core/base/testing/await.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "gtest/gtest.h"
#include "server/app/shard_process.h"
#include "server/rpc/coordinator_fixture.h"
#include "tests/fault/fault_proxy.h"
#include "tests/integration/counted_rows.h"

namespace embla::fault {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;

using client::Client;

constexpr int kNodes = 2;
constexpr std::uint64_t kRate = 300'000;  // Bytes per second: a job takes some second.
constexpr absl::Duration kWaitMax = absl::Minutes(2);
constexpr char kMove[] = "/embla.v1.DataService/Move";

enum Link { kToCoordinator, kBetweenNodes, kToTrainers, kLinks };
constexpr std::array<const char*, kLinks> kNames = {"coordinator", "nodes", "trainers"};

class CutLinksTest : public CoordinatorFixture {
 protected:
  void SetUp() override {
    Start();
    for (int n = 0; n < kNodes; ++n) StartNode(n);
    ASSERT_NO_FATAL_FAILURE(testing::CreateCountedTable(*admin_));
    reader_link_ = StartProxy(server_->address());
  }

  void TearDown() override {
    nodes_.clear();
    CoordinatorFixture::TearDown();
  }

  std::unique_ptr<FaultProxy> StartProxy(const std::string& upstream) {
    auto proxy = FaultProxy::Start(/*seed=*/1, /*witness=*/{});
    EXPECT_THAT(proxy, IsOk());
    if (!upstream.empty()) (*proxy)->SetUpstream(upstream);
    return *std::move(proxy);
  }

  void StartNode(int n) {
    to_coordinator_.push_back(StartProxy(server_->address()));
    to_node_.push_back(StartProxy(""));
    ShardProcessOptions options;
    options.name = NameOf(n);
    options.coordinator = to_coordinator_.back()->address();
    options.advertise = to_node_.back()->address();
    options.cluster_key = key_;
    options.devices.assign(1, {.kind = DeviceKind::kCpu, .memory_bytes = 64 << 20});
    options.threads_per_device = 1;
    options.data.data_sockets = false;  // The proxies do not see these.
    options.data_dir = absl::StrCat(directory_.path(), "/", options.name);
    auto node = ShardProcess::Start(options);
    ASSERT_THAT(node, IsOk());
    nodes_.push_back(*std::move(node));
    to_node_.back()->SetUpstream(nodes_.back()->address());
    AwaitFor([&] { return host_->plan()->FindNode(std::string_view(options.name)) != nullptr; },
             kWaitMax, "the node is in the plan");
  }
  static std::string NameOf(int n) { return absl::StrCat("n", n); }

  void Cut(Link link, int source) {
    LinkFaults cut{.cuts_requests = true, .cuts_replies = true};
    switch (link) {
      case kToCoordinator:
        return to_coordinator_[static_cast<std::size_t>(source)]->SetFaults(cut);
      case kBetweenNodes:
        cut.concerns = [](const std::string& method) { return method == kMove; };
        for (const auto& proxy : to_node_) proxy->SetFaults(cut);
        return;
      default:
        cut.concerns = [](const std::string& method) { return method != kMove; };
        return to_node_[static_cast<std::size_t>(source)]->SetFaults(cut);
    }
  }
  void Heal() {
    for (int n = 0; n < kNodes; ++n) {
      to_coordinator_[static_cast<std::size_t>(n)]->Heal();
      to_node_[static_cast<std::size_t>(n)]->Heal();
    }
  }

  template <typename Answer>
  Answer Ask(std::function<Answer(Coordinator&)> question) {
    std::promise<Answer> answer;
    std::optional<Answer> found;
    host_->Post([&](Coordinator& coordinator, absl::Time) { found.emplace(question(coordinator)); },
                [&](const absl::Status&) { answer.set_value(*std::move(found)); });
    return answer.get_future().get();
  }
  using View = absl::StatusOr<JobView>;
  View StartMoves(int target) {
    return Ask<View>([&](Coordinator& coordinator) {
      return coordinator.StartJob({.goal = MoveGoal{.table = testing::kCountedTable,
                                                    .granule_begin = 0,
                                                    .granule_end = testing::kCountedUnits,
                                                    .node = NameOf(target)},
                                   .bytes_per_second = kRate,
                                   .units_in_flight = 4},
                                  absl::Now());
    });
  }
  View LookAt(std::uint64_t job) {
    return Ask<View>(
        [job](Coordinator& coordinator) { return coordinator.GetJob(job, absl::Now()); });
  }

  std::unique_ptr<Client> Connect(const std::string& coordinator) {
    auto client = Client::Connect({.coordinator = coordinator, .timeout = absl::Seconds(60)});
    EXPECT_THAT(client, IsOk());
    return client.ok() ? *std::move(client) : nullptr;
  }

  // Until the test is over; the last one reads.
  void Train(Client& client, int share, std::uint64_t seed) {
    const bool reads = share == testing::kCountingWriters;
    std::mt19937_64 random(seed + static_cast<std::uint64_t>(share) + 1);
    while (!is_over_ && !HasFailure()) {
      if (reads) {
        testing::CountedRead(client, random, counts_);
      } else {
        testing::CountedWrite(client, share, random, counts_);
      }
    }
  }

  double UnitsIn(const std::string& state, int node) const {
    const std::string text = nodes_[static_cast<std::size_t>(node)]->metrics().Text();
    const std::string series = absl::StrCat("embla_units_moving{state=\"", state, "\"} ");
    const std::size_t at = text.find(series);
    return at == std::string::npos ? 0 : std::stod(text.substr(at + series.size()));
  }

  testing::RowCounts counts_;
  std::atomic<bool> is_over_ = false;
  testing::TempDirectory directory_;
  std::vector<std::unique_ptr<FaultProxy>> to_coordinator_;  // By node.
  std::vector<std::unique_ptr<FaultProxy>> to_node_;         // From trainers and from nodes.
  std::unique_ptr<FaultProxy> reader_link_;                  // To the coordinator.
  std::vector<std::unique_ptr<ShardProcess>> nodes_;
};

TEST_F(CutLinksTest, NoLookupIsStale) {
  const char* const wanted = std::getenv("EMBLA_LINK_CUTS");
  const int cuts = wanted == nullptr ? kLinks : std::atoi(wanted);
  const std::uint64_t seed = testing::TestSeed();
  std::mt19937_64 random(seed);
  std::vector<std::thread> trainers;
  for (int share = 0; share <= testing::kCountingWriters; ++share) {
    const bool reads = share == testing::kCountingWriters;
    const std::shared_ptr<Client> client =
        Connect(reads ? reader_link_->address() : server_->address());
    if (client == nullptr) break;
    trainers.emplace_back([this, client, share, seed] { Train(*client, share, seed); });
  }
  std::array<std::uint64_t, kLinks> moved_while_cut = {};
  for (int i = 0; i < cuts && !HasFailure(); ++i) {
    const auto link = static_cast<Link>(i % kLinks);
    const int source = i % kNodes;
    SCOPED_TRACE(absl::StrCat("cut ", i, ": ", kNames[link]));
    reader_link_->SetFaults({.cuts_requests = true, .cuts_replies = true});
    const View job = StartMoves(1 - source);
    EXPECT_THAT(job, IsOk());
    if (!job.ok()) break;
    const auto moved = [&] { return LookAt(job->job.id)->job.units_moved; };
    const std::uint64_t cut_at = random() % (testing::kCountedUnits / 2);
    AwaitFor([&] { return moved() >= cut_at; }, kWaitMax, "units move");
    const std::uint64_t before = moved();
    Cut(link, source);
    const std::uint64_t reads_until = counts_.lookups + 200;
    const std::uint64_t writes_until = counts_.updates + 200;
    AwaitFor(
        [&] {
          if (link == kToTrainers) return moved() > before + 4;  // Units move on without them.
          // No unit stays frozen. One that is handed over waits for the link to its new owner.
          const bool go_on = counts_.lookups >= reads_until && counts_.updates >= writes_until;
          const bool wait = link == kBetweenNodes && UnitsIn("retained", source) > 0;
          return (go_on || wait) && UnitsIn("frozen", source) == 0;
        },
        kWaitMax, "others go on while the link is cut");
    moved_while_cut[link] += moved() - before;
    Heal();
    AwaitFor([&] { return IsOver(LookAt(job->job.id)->job.state); }, kWaitMax, "the job is over");
    EXPECT_EQ(LookAt(job->job.id)->job.state, JobState::kDone);
    reader_link_->Heal();
    const std::uint64_t again_until = counts_.lookups + 10;
    AwaitFor([&] { return counts_.lookups >= again_until; }, kWaitMax, "the reader goes on");
  }
  Heal();
  reader_link_->Heal();
  is_over_ = true;
  for (std::thread& trainer : trainers) trainer.join();
  std::cout << "cuts=" << cuts << " seed=" << seed << " updates=" << counts_.updates
            << " lookups=" << counts_.lookups << " stale=" << counts_.stale;
  for (int link = 0; link < kLinks; ++link) {
    std::cout << " moved while cut (" << kNames[link] << ")=" << moved_while_cut[link];
  }
  std::cout << '\n';
  EXPECT_EQ(counts_.stale, 0u);
  const std::unique_ptr<Client> client = Connect(server_->address());
  ASSERT_NE(client, nullptr);
  testing::ExpectRowsAreCounted(*client, counts_);
}

}  // namespace
}  // namespace embla::fault
