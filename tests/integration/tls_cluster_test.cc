// A cluster whose every connection is over TLS: it trains, refuses others, says why, and goes on
// while certificates are renewed, connections end by age, and one trainer is revoked.
#include <atomic>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/include/embla/client.h"
#include "core/base/file.h"
#include "core/base/testing/await.h"
#include "core/base/testing/http_get.h"
#include "core/base/testing/status_matchers.h"
#include "core/tls/certificate.h"
#include "core/tls/testing/test_authority.h"
#include "tests/testing/process_cluster.h"

namespace embla::tls_cluster_test {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::HttpGet;
using ::embla::testing::IsOk;
using ::embla::testing::ProcessCluster;
using ::embla::testing::StatusIs;
using ::embla::testing::TempDirectory;
using ::embla::testing::TestAuthority;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kLimit = absl::Seconds(60);
constexpr std::int64_t kRows = 64;
constexpr std::uint32_t kDim = 4;
constexpr char kTable[] =
    "table create --name t --rows 64 --dim 4 --sharding row_wise --optimizer sgd "
    "--learning-rate 1 --init constant";

// Adds 1 to every weight of `id`.
absl::Status AddOne(client::Client& client, std::int64_t id, const char* table = "t") {
  const std::vector<std::int64_t> ids = {id};
  const std::vector<float> gradients(kDim, -1.0f);
  const client::FeatureGradient feature{.table = table, .ids = ids, .gradients = gradients};
  return client.Update({&feature, 1}, {});
}

absl::StatusOr<float> Weight(client::Client& client, std::int64_t id, const char* table = "t") {
  const std::vector<std::int64_t> ids = {id};
  std::vector<float> rows(kDim);
  client::FeatureLookup lookup{.table = table, .ids = ids, .rows_out = rows};
  const absl::Status status = client.Lookup({&lookup, 1}, {});
  if (!status.ok()) return status;
  return rows.front();
}

TEST(TlsCluster, TrainsAndRefusesEverybodyElse) {
  const TestAuthority authority;
  const TestAuthority foreign;
  const TempDirectory directory;
  const std::string audit = directory.path() + "/audit.jsonl";
  const auto cluster = ProcessCluster::Start({.nodes = 2,
                                              .coordinator_flags = {"--audit-log", audit},
                                              .authority = &authority,
                                              .journals = true});
  ASSERT_THAT(cluster, IsOk());
  const auto [created, exit_code] = (*cluster)->Embla(kTable);
  ASSERT_EQ(exit_code, 0) << created;
  const auto trainer = (*cluster)->Connect();
  ASSERT_THAT(trainer, IsOk());
  for (std::int64_t id = 0; id < kRows; ++id) ASSERT_THAT(AddOne(**trainer, id), IsOk());

  // A reader reads.
  const auto reader = (*cluster)->Connect({.tls = (*cluster)->Certificate(Role::kReader, "r")});
  ASSERT_THAT(reader, IsOk());
  const absl::StatusOr<float> read = Weight(**reader, 5);
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(*read, 1.0f);
  EXPECT_THAT(AddOne(**reader, 5),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("spiffe://test/reader/r"), HasSubstr("may not call"),
                             HasSubstr("DataService/Update"))));

  // Nobody is somebody else, or unknown.
  EXPECT_THAT((*cluster)->Connect({.trainer = "other"}).status(),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("trainer other")));
  client::ConnectOptions plain{.coordinator = (*cluster)->coordinator_address(),
                               .timeout = absl::Seconds(2),
                               .waits_for_coordinator = false};
  EXPECT_THAT(
      client::Client::Connect(plain).status(),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr((*cluster)->coordinator_address())));
  client::ConnectOptions stranger = plain;
  const TlsFiles strangers = foreign.Issue(Role::kTrainer, "trainer");
  stranger.tls = {.certificate = strangers.certificate, .authorities = strangers.authorities};
  EXPECT_THAT(client::Client::Connect(stranger).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("over TLS as spiffe://test/trainer/trainer"),
                             HasSubstr((*cluster)->coordinator_address()),
                             HasSubstr("signed by no authority"))));

  // A node that starts again while the coordinator is away has kept the cluster's key.
  (*cluster)->KillCoordinator();
  (*cluster)->KillNode(0);
  ASSERT_THAT((*cluster)->StartNode(0), IsOk());
  for (std::int64_t id = 0; id < kRows; ++id) EXPECT_THAT(AddOne(**trainer, id), IsOk());
  ASSERT_THAT((*cluster)->RestartCoordinator(), IsOk());

  std::vector<nlohmann::json> lines;
  for (const auto& line : absl::StrSplit(*ReadFile(audit), '\n', absl::SkipEmpty())) {
    lines.push_back(nlohmann::json::parse(std::string(line)));
  }
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.front()["who"], "spiffe://test/admin/admin");
  EXPECT_EQ(lines.front()["method"], "embla.v1.AdminService/CreateTables");
  EXPECT_EQ(lines.front()["result"], "OK");
  EXPECT_THAT(
      HttpGet((*cluster)->node_metrics_address(1), "/metrics"),
      AllOf(HasSubstr("embla_tls_certificate_not_after_seconds"), HasSubstr("embla_insecure 0")));
}

TEST(TlsCluster, ATableIsForTheCallersThatItNames) {
  const TestAuthority authority;
  const auto cluster = ProcessCluster::Start({.nodes = 2, .authority = &authority});
  ASSERT_THAT(cluster, IsOk());
  const auto [created, exit_code] = (*cluster)->Embla(absl::StrCat(kTable, " --callers a r"));
  ASSERT_EQ(exit_code, 0) << created;
  const auto connect = [&](Role role, const std::string& name) {
    auto client =
        (*cluster)->Connect({.timeout = kLimit, .tls = (*cluster)->Certificate(role, name)});
    EXPECT_THAT(client, IsOk());
    return *std::move(client);
  };
  const auto a = connect(Role::kTrainer, "a");
  const auto b = connect(Role::kTrainer, "b");
  const auto r = connect(Role::kReader, "r");
  const auto s = connect(Role::kReader, "s");
  const auto refused = [](const std::string& who) {
    return StatusIs(absl::StatusCode::kPermissionDenied,
                    AllOf(HasSubstr(who), HasSubstr("may not use table t"),
                          HasSubstr("embla table set t callers=")));
  };
  EXPECT_THAT(AddOne(*a, 3), IsOk());
  EXPECT_EQ(*Weight(*r, 3), 1.0f);
  EXPECT_THAT(AddOne(*b, 3), refused("spiffe://test/trainer/b"));
  EXPECT_THAT(Weight(*b, 3).status(), refused("spiffe://test/trainer/b"));
  EXPECT_THAT(Weight(*s, 3).status(), refused("spiffe://test/reader/s"));
  const std::vector<std::int64_t> ids = {3};
  std::vector<float> rows(kDim);
  EXPECT_THAT(b->ReadRows("t", ids, rows), refused("spiffe://test/trainer/b"));

  // It is changed while they train.
  ASSERT_EQ((*cluster)->Embla("table set t callers=b").second, 0);
  ASSERT_THAT((*cluster)->AwaitPlan(), IsOk());
  EXPECT_THAT(AddOne(*b, 3), IsOk());
  EXPECT_THAT(AddOne(*a, 3), refused("spiffe://test/trainer/a"));
  ASSERT_EQ((*cluster)->Embla("table set t callers=").second, 0);
  ASSERT_THAT((*cluster)->AwaitPlan(), IsOk());
  EXPECT_THAT(AddOne(*a, 3), IsOk());
  EXPECT_EQ(*Weight(*s, 3), 3.0f);
}

TEST(TlsCluster, ATokenTakesTheCertificatesPlaceUntilItEnds) {
  const TestAuthority authority;
  const std::string tokens = authority.directory() + "/tokens";
  const std::string audit = authority.directory() + "/audit.jsonl";
  const Identity trainer{.cluster = "test", .role = Role::kTrainer, .name = "t7"};
  const std::string token = *NewToken(trainer);
  const auto accept = [&](absl::Time end) {
    ASSERT_THAT(AtomicWriteFile(tokens, LineOfToken(trainer, token, end) + "\n"), IsOk());
  };
  accept(absl::InfiniteFuture());
  const auto cluster =
      ProcessCluster::Start({.nodes = 2,
                             .coordinator_flags = {"--audit-log", audit, "--tokens", tokens},
                             .shard_flags = {"--tokens", tokens, "--connection-age", "2"},
                             .authority = &authority});
  ASSERT_THAT(cluster, IsOk());
  const auto [created, exit_code] = (*cluster)->Embla(absl::StrCat(kTable, " --callers t7"));
  ASSERT_EQ(exit_code, 0) << created;
  const std::string file = authority.directory() + "/token";
  ASSERT_THAT(AtomicWriteFile(file, token), IsOk());
  const client::TlsOptions tls{.authorities = authority.authority_file(), .token = file};
  auto client = (*cluster)->Connect({.trainer = "t7", .tls = tls});
  ASSERT_THAT(client, IsOk());
  EXPECT_THAT(AddOne(**client, 5), IsOk());
  EXPECT_EQ(*Weight(**client, 5), 1.0f);
  EXPECT_THAT((*cluster)->Connect({.trainer = "other", .tls = tls}).status(),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr("spiffe://test/trainer/t7 may not be trainer other")));
  EXPECT_THAT(*ReadFile(audit), AllOf(HasSubstr("spiffe://test/trainer/t7"),
                                      Not(HasSubstr(token.substr(token.rfind('/') + 1)))));

  // New calls are refused at once, and the streams of a trainer with its connections.
  accept(absl::Now() - absl::Seconds(1));
  absl::Status refused;
  EXPECT_TRUE(AwaitFor(
      [&] {
        refused = AddOne(**client, 5);
        return !refused.ok();
      },
      kLimit, "the end of the token"));
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kUnauthenticated,
                                HasSubstr("the token of spiffe://test/trainer/t7 ended at")));
  EXPECT_THAT((*cluster)->LogTails(), Not(HasSubstr(token.substr(token.rfind('/') + 1))));
}

TEST(TlsCluster, NodesOfTheWrongRoleOrNameEndWithTheReason) {
  const TestAuthority authority;
  const auto cluster = ProcessCluster::Start({.nodes = 1, .authority = &authority});
  ASSERT_THAT(cluster, IsOk());
  (*cluster)->KillNode(0);
  const client::TlsOptions trainer = (*cluster)->Certificate(Role::kTrainer, "node0");
  EXPECT_THAT((*cluster)->StartNode(
                  0, {"--tls-cert", trainer.certificate, "--tls-ca", trainer.authorities}),
              Not(IsOk()));
  EXPECT_THAT((*cluster)->LogTails(), HasSubstr("this program needs one of the role node"));
  const client::TlsOptions other = (*cluster)->Certificate(Role::kNode, "node1");
  EXPECT_THAT(
      (*cluster)->StartNode(0, {"--tls-cert", other.certificate, "--tls-ca", other.authorities}),
      Not(IsOk()));
  EXPECT_THAT((*cluster)->LogTails(), HasSubstr("may not be node node0"));
}

// A client that trains and reads until it is told to stop; the first error ends it.
class Load {
 public:
  Load(std::unique_ptr<client::Client> client, std::int64_t id, const char* table = "t")
      : client_(std::move(client)), id_(id), table_(table), thread_([this] { Run(); }) {}
  ~Load() { Stop().IgnoreError(); }

  // The first error.
  absl::Status Stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
    return status_;
  }
  bool is_over() const { return over_; }
  int updates() const { return updates_; }
  client::Client& client() { return *client_; }

 private:
  void Run() {
    while (!stopping_ && status_.ok()) {
      status_ = AddOne(*client_, id_, table_);
      if (!status_.ok()) break;
      ++updates_;
      const absl::StatusOr<float> weight = Weight(*client_, id_, table_);
      status_ = weight.status();
      if (weight.ok() && *weight != static_cast<float>(updates_)) {
        status_ = absl::DataLossError(absl::StrCat(*weight, " after ", updates_.load()));
      }
    }
    over_ = true;
  }

  const std::unique_ptr<client::Client> client_;
  const std::int64_t id_;
  const char* const table_;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> over_ = false;
  std::atomic<int> updates_ = 0;
  absl::Status status_;
  std::thread thread_;
};

TEST(TlsCluster, RenewalAgeAndRevocationFailNoCallOfOthers) {
  const TestAuthority authority;
  authority.Revoke({});
  const std::vector<std::string> flags = {"--connection-age", "2", "--tls-revoked",
                                          authority.revoked()};
  const auto cluster = ProcessCluster::Start(
      {.nodes = 2, .coordinator_flags = flags, .shard_flags = flags, .authority = &authority});
  ASSERT_THAT(cluster, IsOk());
  const auto [created, exit_code] = (*cluster)->Embla(kTable);
  ASSERT_EQ(exit_code, 0) << created;
  const auto [copied, copied_exit_code] = (*cluster)->Embla(
      "table create --name copied --rows 64 --dim 4 --sharding data_parallel --optimizer sgd "
      "--learning-rate 1 --init constant");
  ASSERT_EQ(copied_exit_code, 0) << copied;
  const auto connect = [&](const std::string& name, client::Transport transport) {
    auto client = (*cluster)->Connect({.timeout = absl::Seconds(5),
                                       .transport = transport,
                                       .tls = (*cluster)->Certificate(Role::kTrainer, name)});
    EXPECT_THAT(client, IsOk());
    return *std::move(client);
  };
  Load streams(connect("streams", client::Transport::kStream), 1);
  Load calls(connect("calls", client::Transport::kUnary), 2);
  Load bad(connect("bad", client::Transport::kUnary), 3);
  // Its updates go from one node to the other.
  Load copies(connect("copies", client::Transport::kAuto), 4, "copied");

  // Certificates of all are renewed, several times over the life of a connection.
  const absl::Time end = absl::Now() + absl::Seconds(6);
  absl::Time renewed = absl::InfinitePast();
  ASSERT_TRUE(AwaitFor(
      [&] {
        const bool is_over = absl::Now() > end || streams.is_over() || calls.is_over() ||
                             bad.is_over() || copies.is_over();
        if (is_over || absl::Now() < renewed + absl::Milliseconds(500)) return is_over;
        for (const char* const name : {"streams", "calls", "bad", "copies"}) {
          authority.Issue(Role::kTrainer, name);
        }
        authority.Issue(Role::kNode, "node0");
        authority.Issue(Role::kNode, "node1");
        authority.Issue(Role::kCoordinator, "coordinator");
        renewed = absl::Now();
        return false;
      },
      kLimit, "connections that were made anew"));
  EXPECT_FALSE(bad.is_over());

  // Every certificate that it may have, as the one before may still be in use.
  const TlsFiles files = authority.Issue(Role::kTrainer, "bad");
  const std::string serial = ReadCertificate(*ReadFile(files.certificate))->serial;
  authority.Revoke({serial});
  EXPECT_TRUE(AwaitFor([&] { return bad.is_over(); }, kLimit, "the end of what is revoked"));
  EXPECT_THAT(bad.Stop(), Not(IsOk()));
  EXPECT_THAT((*cluster)->LogTails(), HasSubstr("is revoked"));
  EXPECT_THAT(streams.Stop(), IsOk());
  EXPECT_THAT(calls.Stop(), IsOk());
  EXPECT_THAT(copies.Stop(), IsOk());
  EXPECT_GT(copies.updates(), 0);
  EXPECT_GT(streams.updates(), 0);
  EXPECT_GT(calls.updates(), 0);
}

// Reads rows of 50 ids.
absl::Status ReadFifty(client::Client& client) {
  std::vector<std::int64_t> ids(50);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> rows(ids.size() * kDim);
  client::FeatureLookup lookup{.table = "t", .ids = ids, .rows_out = rows};
  return client.Lookup({&lookup, 1}, {});
}

TEST(TlsCluster, ATrainerBeyondItsQuotaWaitsAndNobodyElseDoes) {
  const TestAuthority authority;
  const TempDirectory directory;
  const std::string quotas = directory.path() + "/quotas.json";
  ASSERT_THAT(AtomicWriteFile(quotas, R"({"slow": {"rows_per_second": 200}})"), IsOk());
  const auto cluster = ProcessCluster::Start(
      {.nodes = 1, .shard_flags = {"--trainer-quotas", quotas}, .authority = &authority});
  ASSERT_THAT(cluster, IsOk());
  const auto [created, exit_code] = (*cluster)->Embla(kTable);
  ASSERT_EQ(exit_code, 0) << created;
  for (const client::Transport transport :
       {client::Transport::kStream, client::Transport::kUnary}) {
    const auto connect = [&](const std::string& name) {
      return (*cluster)->Connect(
          {.transport = transport, .tls = (*cluster)->Certificate(Role::kTrainer, name)});
    };
    const auto slow = connect("slow");
    const auto fast = connect("fast");
    ASSERT_THAT(slow, IsOk());
    ASSERT_THAT(fast, IsOk());
    // The quota has a second's tolerance, and the last request may be beyond it.
    constexpr int kSlowCalls = 13;
    const absl::Time begin = absl::Now();
    std::thread slow_calls([&] {
      for (int i = 0; i < kSlowCalls; ++i) EXPECT_THAT(ReadFifty(**slow), IsOk());
    });
    for (int i = 0; i < 10 * kSlowCalls; ++i) EXPECT_THAT(ReadFifty(**fast), IsOk());
    const absl::Duration fast_took = absl::Now() - begin;
    slow_calls.join();
    const absl::Duration slow_took = absl::Now() - begin;
    EXPECT_GE(slow_took, absl::Seconds((kSlowCalls - 1) * 50.0 / 200 - 1));
    EXPECT_LT(fast_took, slow_took);
  }
}

}  // namespace
}  // namespace embla::tls_cluster_test
