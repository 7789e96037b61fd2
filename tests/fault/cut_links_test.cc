// A link is cut amid a reshard, while a reader goes by the plan from before it: the one between a
// node and the coordinator, between the two ends of the moves, or between trainers and a node.
// No lookup misses an acknowledged update, however long nobody hears of anybody.
//
// Each cut must meet what it is for. A source that is cut off from the coordinator, or from
// trainers, hands units over while it is: the nodes count them, as plans that tell come later. The
// two ends of a move that are cut off from each other hand nothing over, since the source lets go
// of a unit only for a target that says what it holds: there, units are on the way when the link is
// cut, and no more are handed over than had been held by then.
//
// Nodes talk by gRPC, which the proxies see. In another test they have data sockets, which no proxy
// sees: there only the links to the coordinator are cut.
//
// EMBLA_LINK_CUTS: how many links are cut in all. EMBLA_TEST_SEED: when.
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
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
#include "tests/testing/metrics_text.h"

namespace embla::fault::cut_links_test {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;

using client::Client;

constexpr int kNodes = 2;
constexpr std::uint64_t kRate = 150'000;  // Bytes per second: a job takes some two seconds.
constexpr std::uint32_t kInFlight = 4;    // Units.
constexpr absl::Duration kWaitMax = absl::Minutes(2);
constexpr char kMove[] = "/embla.v1.DataService/Move";

enum Link { kToCoordinator, kBetweenNodes, kToTrainers, kLinks };
constexpr std::array<const char*, kLinks> kNames = {"coordinator", "nodes", "trainers"};

class CutLinksTest : public CoordinatorFixture {
 protected:
  void StartCluster(bool data_sockets) {
    Start();
    for (int n = 0; n < kNodes; ++n) StartNode(n, data_sockets);
    grpc::ClientContext context;
    v1::TableReply reply;
    ASSERT_THAT(admin_->CreateTable(&context, testing::CountedTableRequest(), &reply), IsOk());
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

  void StartNode(int n, bool data_sockets) {
    to_coordinator_.push_back(StartProxy(server_->address()));
    to_node_.push_back(StartProxy(""));
    ShardProcessOptions options;
    options.name = NameOf(n);
    options.coordinator = to_coordinator_.back()->address();
    options.advertise = to_node_.back()->address();
    options.cluster_key = key_;
    options.devices.assign(1, {.kind = DeviceKind::kCpu, .memory_bytes = 64 << 20});
    options.threads_per_device = 1;
    options.data.data_sockets = data_sockets;
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
                                   .units_in_flight = kInFlight},
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

  double Metric(int node, const std::string& series) const {
    return testing::MetricsText(nodes_[static_cast<std::size_t>(node)]->metrics().Text())
        .Value(series);
  }
  double UnitsIn(const std::string& state, int node) const {
    return Metric(node, absl::StrCat("embla_units_moving{state=\"", state, "\"}"));
  }
  // Units that the node's log has let go of, ever.
  double HandedOver(int node) const { return Metric(node, "embla_moves_total{outcome=\"sent\"}"); }

  void StartTrainers(std::uint64_t seed) {
    for (int share = 0; share <= testing::kCountingWriters; ++share) {
      const bool reads = share == testing::kCountingWriters;
      const std::shared_ptr<Client> client =
          Connect(reads ? reader_link_->address() : server_->address());
      if (client == nullptr) break;
      trainers_.emplace_back([this, client, share, seed] { Train(*client, share, seed); });
    }
  }

  // All units move to the other node, and a link of the one that has them is cut. Returns how many
  // are handed over while it is.
  double CutOnce(Link link, std::mt19937_64& random) {
    const int source = std::exchange(source_, 1 - source_);
    const auto cut_at = static_cast<double>(random() % (testing::kCountedUnits / 3));
    reader_link_->SetFaults({.cuts_requests = true, .cuts_replies = true});
    const double at_first = HandedOver(source);
    const View job = StartMoves(1 - source);
    EXPECT_THAT(job, IsOk());
    if (!job.ok()) return 0;
    AwaitFor(
        [&] { return HandedOver(source) >= at_first + cut_at && UnitsIn("sending", source) > 0; },
        kWaitMax, "units move");
    Cut(link, source);
    const double before = HandedOver(source);
    const std::uint64_t reads_until = counts_.lookups + 200;
    const std::uint64_t writes_until = counts_.updates + 200;
    AwaitFor(
        [&] {
          if (link == kToTrainers) return HandedOver(source) > before + kInFlight;
          // No unit stays frozen. One that is handed over waits for the link to its new owner.
          if (UnitsIn("frozen", source) > 0) return false;
          if (link == kBetweenNodes && UnitsIn("retained", source) > 0) return true;
          if (counts_.lookups < reads_until || counts_.updates < writes_until) return false;
          const bool is_met = HandedOver(source) > before || UnitsIn("sending", source) == 0;
          return is_met || link == kBetweenNodes;
        },
        kWaitMax, "others go on while the link is cut");
    const double while_cut = HandedOver(source) - before;
    Heal();
    AwaitFor([&] { return IsOver(LookAt(job->job.id)->job.state); }, kWaitMax, "the job is over");
    EXPECT_EQ(LookAt(job->job.id)->job.state, JobState::kDone);
    reader_link_->Heal();
    const std::uint64_t again_until = counts_.lookups + 10;
    AwaitFor([&] { return counts_.lookups >= again_until; }, kWaitMax, "the reader goes on");
    return while_cut;
  }

  // Links of `kinds` are cut in turn, `cuts` in all.
  void Run(int cuts, std::span<const Link> kinds) {
    const std::uint64_t seed = testing::TestSeed();
    std::mt19937_64 random(seed);
    StartTrainers(seed);
    std::array<double, kLinks> while_cut = {};
    for (int i = 0; i < cuts && !HasFailure(); ++i) {
      const Link link = kinds[static_cast<std::size_t>(i) % kinds.size()];
      SCOPED_TRACE(absl::StrCat("cut ", i, ": ", kNames[link]));
      double handed_over = CutOnce(link, random);
      // All that were on their way may have arrived just before the cut.
      for (int again = 0; handed_over == 0 && link != kBetweenNodes && again < 3; ++again) {
        handed_over = CutOnce(link, random);
      }
      if (link == kBetweenNodes) {
        EXPECT_LE(handed_over, kInFlight);
      } else {
        EXPECT_GT(handed_over, 0);
      }
      while_cut[link] += handed_over;
    }
    Heal();
    reader_link_->Heal();
    is_over_ = true;
    for (std::thread& trainer : trainers_) trainer.join();
    std::cout << "cuts=" << cuts << " seed=" << seed << " updates=" << counts_.updates
              << " lookups=" << counts_.lookups << " stale=" << counts_.stale;
    for (const Link link : kinds) {
      std::cout << " handed over while cut (" << kNames[link] << ")=" << while_cut[link];
    }
    std::cout << '\n';
    EXPECT_EQ(counts_.stale, 0u);
    const std::unique_ptr<Client> client = Connect(server_->address());
    ASSERT_NE(client, nullptr);
    testing::ExpectRowsAreCounted(*client, counts_);
  }

  // EMBLA_LINK_CUTS, or as many as given.
  static int Cuts(int usual) {
    const char* const wanted = std::getenv("EMBLA_LINK_CUTS");
    return wanted == nullptr ? usual : std::atoi(wanted);
  }

  testing::RowCounts counts_;
  std::atomic<bool> is_over_ = false;
  testing::TempDirectory directory_;
  std::vector<std::unique_ptr<FaultProxy>> to_coordinator_;  // By node.
  std::vector<std::unique_ptr<FaultProxy>> to_node_;         // From trainers and from nodes.
  std::unique_ptr<FaultProxy> reader_link_;                  // To the coordinator.
  std::vector<std::unique_ptr<ShardProcess>> nodes_;
  int source_ = 0;                     // The node whose units move next.
  std::vector<std::thread> trainers_;  // The last one reads.
};

TEST_F(CutLinksTest, NoLookupIsStale) {
  constexpr std::array kKinds = {kToCoordinator, kBetweenNodes, kToTrainers};
  ASSERT_NO_FATAL_FAILURE(StartCluster(/*data_sockets=*/false));
  Run(Cuts(kLinks), kKinds);
}

TEST_F(CutLinksTest, NoLookupIsStaleByDataSockets) {
  constexpr std::array kKinds = {kToCoordinator};
  ASSERT_NO_FATAL_FAILURE(StartCluster(/*data_sockets=*/true));
  Run(Cuts(2), kKinds);
  // Sockets of trainers are gone with them.
  for (int n = 0; n < kNodes; ++n) {
    AwaitFor([&] { return Metric(n, "embla_data_sockets") == 1; }, kWaitMax,
             "the other node's socket is the last one");
  }
}

}  // namespace
}  // namespace embla::fault::cut_links_test
