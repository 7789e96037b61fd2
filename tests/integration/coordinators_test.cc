// Three coordinators on three members of etcd, all real processes: the leader is killed, stopped or
// cut off from etcd while units move and trainers train. No lookup fails, no update is lost or done
// twice, every job ends, and another coordinator answers within seconds. The same with TLS on every
// connection.
//
// EMBLA_FAILOVERS: how often (3; tests/long.sh has 300). EMBLA_TEST_SEED: when.
// Skipped where etcd is not installed (deploy/install_packages.sh --tests).
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/cluster_key.h"
#include "core/base/testing/await.h"
#include "core/base/testing/http_get.h"
#include "core/base/testing/loopback.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "core/tls/testing/test_authority.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/etcd_members.h"
#include "tests/testing/process_cluster.h"
#include "tests/testing/tcp_gate.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::ChildProcess;
using ::embla::testing::EtcdMembers;
using ::embla::testing::HttpGet;
using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::embla::testing::TcpGate;
using ::embla::testing::TestAuthority;
using ::testing::HasSubstr;

using client::Admin;
using client::Client;

constexpr int kCoordinators = 3;
constexpr int kNodes = 2;
constexpr std::int64_t kRows = 4800;
constexpr std::uint32_t kDim = 16;
constexpr std::uint32_t kGranules = 48;
constexpr int kWriters = 2;
constexpr absl::Duration kWaitMax = absl::Minutes(2);
constexpr absl::Duration kFailoverPromise = absl::Seconds(5);

std::string BinaryPath(const std::string& name) {
  const char* const directory = std::getenv("EMBLA_BIN_DIR");
  return absl::StrCat(directory == nullptr ? "." : directory, "/", name);
}

struct Program {
  ChildProcess process;
  std::string listen = testing::AnyLoopbackPort();
  std::string admin = testing::AnyLoopbackPort();
  std::string metrics = testing::AnyLoopbackPort();
};

// Coordinators over `etcd`, each behind gates of its own, and nodes. With an authority, every
// connection is over TLS.
class Cluster {
 public:
  explicit Cluster(const EtcdMembers& etcd, const std::string& prefix = "/embla",
                   const TestAuthority* authority = nullptr)
      : prefix_(prefix), etcd_(etcd.ClientOptions()), authority_(authority) {
    std::ofstream(directory_.path() + "/key") << ClusterKey::Generate().Format();
    std::filesystem::permissions(
        directory_.path() + "/key",
        std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    for (std::vector<std::unique_ptr<TcpGate>>& gates : gates_) {
      for (const std::string& member : etcd.clients()) {
        gates.push_back(std::make_unique<TcpGate>(member));
      }
    }
  }

  void StartCoordinator(int i) {
    std::vector<std::string> members;
    for (const auto& gate : gates_[i]) members.push_back(gate->address());
    std::vector<std::string> command = {
        BinaryPath("embla-coordinator"),
        "--listen",
        coordinators_[i].listen,
        "--admin-listen",
        coordinators_[i].admin,
        "--metrics-listen",
        coordinators_[i].metrics,
        "--state",
        absl::StrCat("etcd://", absl::StrJoin(members, ","), prefix_),
        "--cluster-key",
        directory_.path() + "/key"};
    if (!etcd_.ca_file.empty()) {
      command.insert(command.end(), {"--etcd-ca", etcd_.ca_file, "--etcd-cert", etcd_.cert_file,
                                     "--etcd-key", etcd_.key_file});
    }
    Launch(coordinators_[i], absl::StrCat("coordinator", i), std::move(command),
           Role::kCoordinator);
  }
  void StartNode(int i) {
    Launch(nodes_[i], absl::StrCat("n", i),
           {BinaryPath("embla-shard"), "--name", absl::StrCat("n", i), "--coordinator", Addresses(),
            "--listen", nodes_[i].listen, "--metrics-listen", nodes_[i].metrics, "--devices",
            "cpu:1", "--cluster-key", directory_.path() + "/key", "--data-dir",
            absl::StrCat(directory_.path(), "/n", i)},
           Role::kNode);
  }
  void Start() {
    for (int i = 0; i < kCoordinators; ++i) StartCoordinator(i);
    for (int i = 0; i < kNodes; ++i) StartNode(i);
  }

  // The coordinator that says so; -1: none.
  int Leader(int besides = -1) const {
    for (int i = 0; i < kCoordinators; ++i) {
      if (i == besides || !coordinators_[i].process.running()) continue;
      if (HttpGet(coordinators_[i].metrics, "/readyz").find("ready: leader") != std::string::npos) {
        return i;
      }
    }
    return -1;
  }
  std::string Addresses() const {
    return absl::StrCat(coordinators_[0].listen, ",", coordinators_[1].listen, ",",
                        coordinators_[2].listen);
  }
  std::string AdminAddresses() const {
    return absl::StrCat(coordinators_[0].admin, ",", coordinators_[1].admin, ",",
                        coordinators_[2].admin);
  }
  std::unique_ptr<Admin> ConnectAdmin() const {
    auto admin = Admin::Connect(AdminAddresses(), kWaitMax, Admin::IfAbsent::kWait,
                                Certificate(Role::kAdmin, "admin"));
    EXPECT_THAT(admin, IsOk());
    return admin.ok() ? *std::move(admin) : nullptr;
  }
  // The certificate of a caller; none without an authority.
  client::TlsOptions Certificate(Role role, const std::string& name) const {
    if (authority_ == nullptr) return {};
    const TlsFiles files = authority_->Issue(role, name);
    return {.certificate = files.certificate, .authorities = files.authorities};
  }
  Program& coordinator(int i) { return coordinators_[i]; }
  void Cut(int coordinator) {
    for (const auto& gate : gates_[coordinator]) gate->Shut();
  }
  void Heal(int coordinator) {
    for (const auto& gate : gates_[coordinator]) gate->Open();
  }
  std::string Logs() const {
    std::string text;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      if (entry.path().extension() != ".log") continue;
      std::ifstream file(entry.path());
      const std::string all{std::istreambuf_iterator<char>(file), {}};
      absl::StrAppend(&text, "--- ", entry.path().filename().string(), "\n",
                      all.substr(all.size() > 3000 ? all.size() - 3000 : 0));
    }
    return text;
  }

 private:
  void Launch(Program& program, const std::string& name, std::vector<std::string> argv, Role role) {
    if (authority_ != nullptr) {
      const TlsFiles files = authority_->Issue(role, name);
      argv.insert(argv.end(), {"--tls-cert", files.certificate, "--tls-ca", files.authorities});
    }
    const std::string ports = absl::StrCat(directory_.path(), "/", name, ".json");
    std::filesystem::remove(ports);
    argv.insert(argv.end(), {"--port-file", ports});
    auto process = ChildProcess::Start(argv, absl::StrCat(directory_.path(), "/", name, ".log"));
    ASSERT_THAT(process, IsOk());
    program.process = *std::move(process);
    ASSERT_TRUE(AwaitFor([&] { return std::filesystem::exists(ports); }, kWaitMax, "it listens"))
        << Logs();
    std::ifstream file(ports);
    const nlohmann::json json = nlohmann::json::parse(file);
    program.listen = json.at("listen");
    if (json.contains("admin")) program.admin = json.at("admin");
    program.metrics = json.at("metrics");
  }

  const std::string prefix_;
  const EtcdClientOptions etcd_;
  const TestAuthority* const authority_;  // Not owned; null: plaintext.
  testing::TempDirectory directory_;
  std::array<std::vector<std::unique_ptr<TcpGate>>, kCoordinators> gates_;
  std::array<Program, kCoordinators> coordinators_;
  std::array<Program, kNodes> nodes_;
};

// Each update of a row adds 1 to all of its weights.
struct Counts {
  std::array<std::atomic<std::uint32_t>, kRows> acked = {};
  std::atomic<std::uint64_t> updates = 0;
  std::atomic<std::uint64_t> lookups = 0;
  std::atomic<std::uint64_t> stale = 0;
};

void Write(Client& client, int share, std::mt19937_64& random, Counts& counts) {
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 8; ++i) {
    const auto row = static_cast<std::int64_t>(random() % (kRows / kWriters));
    ids.push_back(share + kWriters * row);
  }
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  const std::vector<float> gradients(ids.size() * kDim, -1.0f);
  const client::FeatureGradient feature{.table = "t", .ids = ids, .gradients = gradients};
  const absl::Status status = client.Update({&feature, 1}, {});
  ASSERT_THAT(status, IsOk());
  for (const std::int64_t id : ids) ++counts.acked[static_cast<std::size_t>(id)];
  ++counts.updates;
}

void Read(Client& client, std::mt19937_64& random, Counts& counts) {
  const auto id = static_cast<std::int64_t>(random() % kRows);
  const std::uint32_t acked = counts.acked[static_cast<std::size_t>(id)];
  std::vector<float> row(kDim);
  const client::FeatureLookup feature{.table = "t", .ids = {&id, 1}, .rows_out = row};
  const absl::Status status = client.Lookup({&feature, 1}, {});
  ASSERT_THAT(status, IsOk());
  ++counts.lookups;
  if (row[0] < static_cast<float>(acked)) ++counts.stale;
}

class CoordinatorsTest : public ::testing::Test {
 protected:
  void SetUp() override { Begin(EtcdMembers::Wire::kPlaintext, nullptr); }
  void Begin(EtcdMembers::Wire wire, const TestAuthority* authority) {
    auto etcd = EtcdMembers::Start(3, wire);
    ASSERT_THAT(etcd, IsOk());
    etcd_ = *std::move(etcd);
    cluster_ = std::make_unique<Cluster>(*etcd_, "/embla", authority);
    cluster_->Start();
  }
  void TearDown() override {
    if (HasFailure() && cluster_ != nullptr) std::cout << cluster_->Logs();
  }

  std::unique_ptr<Client> Connect() {
    auto client = Client::Connect({.coordinator = cluster_->Addresses(),
                                   .timeout = absl::Seconds(60),
                                   .tls = cluster_->Certificate(Role::kTrainer, "t")});
    EXPECT_THAT(client, IsOk());
    return client.ok() ? *std::move(client) : nullptr;
  }

  // A call that a leader takes, tried until one does.
  template <typename Reply, typename Request>
  absl::StatusOr<Reply> Ask(Admin& admin, const Request& request) {
    absl::StatusOr<Reply> reply;
    AwaitFor(
        [&] {
          reply = admin.Call<Reply>(request);
          return !absl::IsUnavailable(reply.status()) && !absl::IsDeadlineExceeded(reply.status());
        },
        kWaitMax, "a coordinator answers");
    return reply;
  }

  void CreateTable(Admin& admin) {
    ASSERT_TRUE(AwaitFor(
        [&] {
          const auto status = admin.Call<v1::ClusterStatus>(v1::GetClusterStatusRequest());
          return status.ok() && status->nodes_live() == kNodes;
        },
        kWaitMax, "the nodes are live"));
    const auto created = Ask<v1::TableReply>(
        admin, client::CreateTableRequest(
                   absl::StrCat(R"({"name": "t", "rows": )", kRows, R"(, "dim": )", kDim,
                                R"(, "row_granules": )", kGranules,
                                R"(, "optimizer": {"kind": "sgd", "learning_rate": 1.0})",
                                R"(, "init": {"kind": "constant", "a": 0.0}})"),
                   R"({"sharding": "row_wise"})"));
    ASSERT_THAT(created, IsOk());
  }

  // Output of embla state copy, errors too.
  static std::string Copy(const std::string& from, const std::string& to) {
    std::FILE* const pipe = popen(
        absl::StrCat(BinaryPath("embla"), " state copy ", from, " ", to, " 2>&1").c_str(), "r");
    std::string printed;
    char buffer[4096];
    while (const std::size_t size = std::fread(buffer, 1, sizeof(buffer), pipe)) {
      printed.append(buffer, size);
    }
    pclose(pipe);
    return printed;
  }

  enum class Way { kKilled, kStopped, kCutOff };

  // Takes the leader away; brings it back when another one leads. Returns how long operators' calls
  // had no answer, in seconds.
  double FailOver(Admin& admin, Way way) {
    constexpr const char* kWays[] = {"killed", "stopped", "cut off from etcd"};
    int leader = -1;
    AwaitFor([&] { return (leader = cluster_->Leader()) >= 0; }, kWaitMax, "there is a leader");
    if (leader < 0) return absl::ToDoubleSeconds(kWaitMax);
    ChildProcess& process = cluster_->coordinator(leader).process;
    const absl::Time gone = absl::Now();
    if (way == Way::kKilled) {
      process.Signal(SIGKILL);
      process.Wait();
    } else if (way == Way::kStopped) {
      process.Signal(SIGSTOP);
    } else {
      cluster_->Cut(leader);
    }
    AwaitFor(
        [&] {
          return Ask<v1::ClusterStatus>(admin, v1::GetClusterStatusRequest()).ok() &&
                 cluster_->Leader(leader) >= 0;
        },
        kWaitMax, "another one leads and answers");
    const double took = absl::ToDoubleSeconds(absl::Now() - gone);
    std::cout << "leader " << kWays[static_cast<int>(way)] << ": answers again after " << took
              << "s\n";
    if (way == Way::kKilled) cluster_->StartCoordinator(leader);
    if (way == Way::kStopped) process.Signal(SIGCONT);
    if (way == Way::kCutOff) cluster_->Heal(leader);
    return took;
  }

  void AwaitDone(Admin& admin, std::uint64_t id) {
    absl::StatusOr<v1::JobReply> view;
    EXPECT_TRUE(AwaitFor(
        [&] {
          view = admin.Call<v1::JobReply>(client::GetJobRequest(id));
          return view.ok() && client::IsOver(view->job().state());
        },
        kWaitMax, "the job is over"));
    ASSERT_THAT(view, IsOk());
    EXPECT_EQ(view->job().state(), v1::JOB_STATE_DONE) << view->DebugString();
  }

  void CheckRows(const Counts& counts) {
    const std::unique_ptr<Client> client = Connect();
    std::vector<std::int64_t> ids(kRows);
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<float> rows(ids.size() * kDim);
    const absl::Status read = client->ReadRows("t", ids, rows);
    ASSERT_THAT(read, IsOk());
    for (std::size_t at = 0; at < ids.size(); ++at) {
      ASSERT_EQ(rows[at * kDim], static_cast<float>(counts.acked[at])) << "row " << at;
    }
  }

  void MoveUnitsWhileTheLeaderGoes(int failovers);

  std::unique_ptr<EtcdMembers> etcd_;
  std::unique_ptr<Cluster> cluster_;
};

class CoordinatorsOverTlsTest : public CoordinatorsTest {
 protected:
  void SetUp() override { Begin(EtcdMembers::Wire::kTls, &authority_); }

  const TestAuthority authority_;
};

void CoordinatorsTest::MoveUnitsWhileTheLeaderGoes(int failovers) {
  const std::uint64_t seed = testing::TestSeed();
  std::mt19937_64 random(seed);
  const std::unique_ptr<Admin> admin = cluster_->ConnectAdmin();
  ASSERT_NE(admin, nullptr);
  CreateTable(*admin);
  Counts counts;
  std::atomic<bool> is_over = false;
  std::vector<std::thread> trainers;
  for (int share = 0; share <= kWriters; ++share) {
    std::shared_ptr<Client> client = Connect();
    if (client == nullptr) break;
    trainers.emplace_back([&, share, client] {
      std::mt19937_64 mine(seed + static_cast<std::uint64_t>(share) + 1);
      while (!is_over && !HasFailure()) {
        share == kWriters ? Read(*client, mine, counts) : Write(*client, share, mine, counts);
      }
    });
  }
  std::vector<double> took;
  for (int i = 0; i < failovers && !HasFailure(); ++i) {
    v1::StartJobRequest move = client::MoveRequest("t", 0, kGranules, i % 2 == 0 ? "n1" : "n0", 0);
    move.set_bytes_per_second(150'000);
    move.set_units_in_flight(4);
    const auto job = Ask<v1::JobReply>(*admin, move);
    EXPECT_THAT(job, IsOk());
    if (!job.ok()) break;
    const std::uint64_t until = counts.updates + random() % 3000;
    AwaitFor([&] { return counts.updates >= until || HasFailure(); }, kWaitMax, "writers go on");
    took.push_back(FailOver(*admin, static_cast<Way>(i % 3)));
    AwaitDone(*admin, job->job().id());
  }
  is_over = true;
  for (std::thread& trainer : trainers) trainer.join();
  ASSERT_FALSE(took.empty());
  std::ranges::sort(took);
  const double p99 = took[(took.size() * 99 + 99) / 100 - 1];
  std::cout << "failovers=" << took.size() << " seed=" << seed << " p50_s=" << took[took.size() / 2]
            << " p99_s=" << p99 << " max_s=" << took.back() << " updates=" << counts.updates
            << " lookups=" << counts.lookups << " stale=" << counts.stale << '\n';
  EXPECT_EQ(counts.stale, 0u);
  EXPECT_LE(p99, absl::ToDoubleSeconds(kFailoverPromise));
  CheckRows(counts);
}

TEST_F(CoordinatorsTest, TheLeaderMayGoAtAnyMomentOfAReshard) {
  const char* const wanted = std::getenv("EMBLA_FAILOVERS");
  MoveUnitsWhileTheLeaderGoes(wanted == nullptr ? 3 : std::atoi(wanted));
}

TEST_F(CoordinatorsOverTlsTest, TheLeaderMayGoAtAnyMomentOfAReshard) {
  MoveUnitsWhileTheLeaderGoes(3);

  EXPECT_THAT(Client::Connect({.coordinator = cluster_->Addresses(),
                               .timeout = absl::Seconds(2),
                               .waits_for_coordinator = false})
                  .status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("coordinator 127.")));
  const absl::StatusOr<std::unique_ptr<EtcdKv>> without_certificate =
      MakeEtcdClient({.members = etcd_->clients(), .ca_file = etcd_->ClientOptions().ca_file});
  ASSERT_THAT(without_certificate, IsOk());
  EXPECT_THAT((*without_certificate)->List("/", absl::Seconds(1)).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("")));
}

// One that was stopped closes no connection: only pings tell.
TEST_F(CoordinatorsTest, NodesAndClientsLeaveALeaderThatIsStopped) {
  constexpr absl::Duration kNoticed = absl::Seconds(12);  // Lease and pings have 3 s each.
  const std::unique_ptr<Admin> admin = cluster_->ConnectAdmin();
  ASSERT_NE(admin, nullptr);
  CreateTable(*admin);
  const std::unique_ptr<Client> client = Connect();
  ASSERT_NE(client, nullptr);
  const int leader = cluster_->Leader();
  ASSERT_GE(leader, 0);
  const absl::Time gone = absl::Now();
  cluster_->coordinator(leader).process.Signal(SIGSTOP);
  // A standby may be asked before the leader's lease is over: it still names that one.
  EXPECT_TRUE(AwaitFor([&] { return client->RefreshPlan().ok(); }, kNoticed,
                       "the client has a plan of another leader"));
  EXPECT_TRUE(AwaitFor(
      [&] {
        const auto status = admin->Call<v1::ClusterStatus>(v1::GetClusterStatusRequest());
        return status.ok() && status->nodes_live() == kNodes;
      },
      gone + kNoticed - absl::Now(), "the nodes are live at another leader"));
  cluster_->coordinator(leader).process.Signal(SIGCONT);
}

TEST_F(CoordinatorsTest, AStandbyNamesTheLeaderAndOneAddressIsEnoughToFindIt) {
  int leader = -1;
  ASSERT_TRUE(
      AwaitFor([&] { return (leader = cluster_->Leader()) >= 0; }, kWaitMax, "there is a leader"));
  Program& standby = cluster_->coordinator((leader + 1) % kCoordinators);
  const std::string named = "ready: standby, the leader is " + cluster_->coordinator(leader).listen;
  EXPECT_TRUE(
      AwaitFor([&] { return HttpGet(standby.metrics, "/readyz").find(named) != std::string::npos; },
               kWaitMax, "the standby knows the leader"));
  EXPECT_THAT(HttpGet(standby.metrics, "/metrics"), HasSubstr("embla_coordinator_leads 0"));
  EXPECT_THAT(HttpGet(standby.metrics, "/console/state.json"),
              HasSubstr("http://" + cluster_->coordinator(leader).metrics + "/console/"));
  EXPECT_THAT(HttpGet(cluster_->coordinator(leader).metrics, "/console/state.json"),
              HasSubstr(R"("role":"leader")"));
  EXPECT_THAT(HttpGet(cluster_->coordinator(leader).metrics, "/metrics"),
              HasSubstr("embla_coordinator_leads 1"));
  const auto admin = Admin::Connect(standby.admin, kWaitMax);
  ASSERT_THAT(admin, IsOk());
  EXPECT_THAT((*admin)->Call<v1::ClusterStatus>(v1::GetClusterStatusRequest()), IsOk());
  EXPECT_THAT(Client::Connect({.coordinator = standby.listen, .timeout = absl::Seconds(20)}),
              IsOk());
}

TEST_F(CoordinatorsTest, CoordinatorsOfTwoClustersAreRefused) {
  Cluster other(*etcd_, "/other");
  other.StartCoordinator(0);
  const auto knows_its_cluster = [&] {
    const std::string answer = HttpGet(cluster_->coordinator(0).metrics, "/readyz");
    return answer.find("ready: leader") != std::string::npos ||
           answer.find("the leader is") != std::string::npos;
  };
  ASSERT_TRUE(AwaitFor([&] { return knows_its_cluster() && other.Leader() == 0; }, kWaitMax,
                       "both have leaders"));
  const std::string mixed = cluster_->coordinator(0).listen + "," + other.coordinator(0).listen;
  EXPECT_THAT(Client::Connect({.coordinator = mixed, .timeout = absl::Seconds(20)}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("of two clusters")));
  const std::string admins = cluster_->coordinator(0).admin + "," + other.coordinator(0).admin;
  EXPECT_THAT(Admin::Connect(admins, kWaitMax).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("of two clusters")));
}

// A cluster that a coordinator began in a directory goes on over etcd, and back.
TEST_F(CoordinatorsTest, AClusterMovesFromADirectoryToEtcdAndBack) {
  const testing::TempDirectory directory;
  const std::string state = directory.path() + "/state";
  const std::string etcd = etcd_->Address("/moved");
  std::string cluster_id;
  const auto run = [&](const std::string& place, const std::string& key) {
    const std::string ports = directory.path() + "/ports.json";
    std::filesystem::remove(ports);
    std::vector<std::string> argv = {BinaryPath("embla-coordinator"),
                                     "--state",
                                     place,
                                     "--listen",
                                     testing::AnyLoopbackPort(),
                                     "--admin-listen",
                                     testing::AnyLoopbackPort(),
                                     "--port-file",
                                     ports};
    if (!key.empty()) argv.insert(argv.end(), {"--cluster-key", key});
    auto process = ChildProcess::Start(argv, directory.path() + "/coordinator.log");
    ASSERT_THAT(process, IsOk());
    ASSERT_TRUE(AwaitFor([&] { return std::filesystem::exists(ports); }, kWaitMax, "it listens"));
    std::ifstream file(ports);
    const std::string address = nlohmann::json::parse(file).at("admin");
    const auto admin = Admin::Connect(address, kWaitMax);
    ASSERT_THAT(admin, IsOk());
    const auto status = Ask<v1::ClusterStatus>(**admin, v1::GetClusterStatusRequest());
    ASSERT_THAT(status, IsOk());
    if (cluster_id.empty()) cluster_id = status->cluster_id();
    EXPECT_EQ(status->cluster_id(), cluster_id);
    EXPECT_EQ(status->generation(), 1u);
    if (place == etcd) {
      EXPECT_THAT(Copy(etcd, directory.path() + "/early"), HasSubstr("stop all of them first"));
    } else {
      EXPECT_THAT(Copy(place, etcd_->Address("/early")), HasSubstr("FAILED_PRECONDITION"));
    }
    process->Signal(SIGTERM);
    process->Wait();
  };
  run(state, "");
  const std::string key = state + "/cluster.key";
  EXPECT_THAT(Copy(state, etcd), HasSubstr("copied "));
  EXPECT_THAT(Copy(state, etcd), HasSubstr("is not empty"));
  run(etcd, key);
  const std::string back = directory.path() + "/back";
  EXPECT_THAT(Copy(etcd, back + " --cluster-key " + key), HasSubstr("copied "));
  EXPECT_THAT(Copy(etcd, back), HasSubstr("not an empty directory"));
  EXPECT_THAT(Copy(directory.path() + "/nothing", etcd), HasSubstr("NOT_FOUND"));
  run(back, "");
}

}  // namespace
}  // namespace embla

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  if (embla::testing::EtcdMembers::Program().empty()) {
    std::puts(
        "SKIPPED: etcd is not installed (deploy/install_packages.sh --tests installs etcd-server)");
    return 77;
  }
  return RUN_ALL_TESTS();
}
