// Programs for supervisors: health by grpc.health.v1 and /readyz, logs as JSON.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/file.h"
#include "core/base/testing/await.h"
#include "core/base/testing/http_get.h"
#include "core/base/testing/status_matchers.h"
#include "embla/v1/coordinator.grpc.pb.h"
#include "tests/testing/metrics_text.h"
#include "tests/testing/process_cluster.h"

namespace embla::readiness_test {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::HttpGet;
using ::embla::testing::IsOk;
using ::embla::testing::kAwaitMax;
using ::embla::testing::MetricsText;
using ::embla::testing::ProcessCluster;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The answer of grpc.health.v1.Health/Check, whose reply is one number; without a service, of the
// whole server.
std::string HealthOf(const std::string& address, const std::string& service = "") {
  grpc::GenericStub stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(absl::ToChronoTime(absl::Now() + kAwaitMax));
  const std::string field =
      service.empty() ? "" : absl::StrCat("\n", std::string(1, char(service.size())), service);
  const grpc::Slice asked(field);
  grpc::ByteBuffer message(&asked, 1);
  grpc::ByteBuffer reply;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &message, &reply,
                 [&done](const grpc::Status& status) { done.set_value(status); });
  if (const grpc::Status status = done.get_future().get(); !status.ok()) {
    return status.error_message();
  }
  grpc::Slice bytes;
  if (!reply.DumpToSingleSlice(&bytes).ok()) return "no message";
  const std::string text(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
  if (text == "\x08\x01") return "SERVING";
  return text == "\x08\x02" ? "NOT_SERVING" : absl::StrCat("unknown: ", text);
}

TEST(Readiness, AShardServerServesOnceItIsRegisteredAndSaysWhatIsMissing) {
  const auto started = ProcessCluster::Start({.nodes = 1, .devices_per_node = 1});
  ASSERT_THAT(started, IsOk());
  ProcessCluster& cluster = **started;
  cluster.KillNode(0);
  cluster.KillCoordinator();
  ASSERT_THAT(cluster.StartNode(0), IsOk());
  EXPECT_EQ(HealthOf(cluster.node_address(0)), "NOT_SERVING");
  EXPECT_EQ(HealthOf(cluster.node_address(0), "embla.v1.DataService"), "NOT_SERVING");
  const std::string missing = HttpGet(cluster.node_metrics_address(0), "/readyz");
  EXPECT_THAT(missing, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(missing, HasSubstr("not ready: no coordinator yet"));
  EXPECT_THAT(HttpGet(cluster.node_metrics_address(0), "/healthz"), StartsWith("HTTP/1.1 200"));
  const std::string health = absl::StrCat("health http://", cluster.node_metrics_address(0));
  const auto [refused, exit_code] = cluster.Embla(health);
  EXPECT_THAT(refused, HasSubstr("not ready: no coordinator yet"));
  EXPECT_EQ(exit_code, 5);
  EXPECT_EQ(cluster.Embla(health + " --live").second, 0);

  ASSERT_THAT(cluster.RestartCoordinator(), IsOk());
  EXPECT_TRUE(AwaitFor([&] { return HealthOf(cluster.node_address(0)) == "SERVING"; }, kAwaitMax,
                       "the shard server serves"));
  EXPECT_EQ(HealthOf(cluster.node_address(0), "embla.v1.DataService"), "SERVING");
  EXPECT_EQ(HealthOf(cluster.node_address(0), "embla.v1.InspectService"), "SERVING");
  EXPECT_THAT(HealthOf(cluster.node_address(0), "embla.v1.AdminService"), HasSubstr("unknown"));
  EXPECT_THAT(HttpGet(cluster.node_metrics_address(0), "/readyz"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(cluster.Embla(health).second, 0);
  // Trainers do without the coordinator, so the node serves on without it.
  cluster.KillCoordinator();
  EXPECT_EQ(HealthOf(cluster.node_address(0)), "SERVING");
}

// The answer of gRPC's reflection about all services at `address`, or the error.
std::string ServicesOf(const std::string& address) {
  grpc::GenericStub stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  const auto await = [&] {
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return ok;
  };
  call->StartCall(nullptr);
  await();
  const grpc::Slice list_all("\x3a\x01*");
  call->Write(grpc::ByteBuffer(&list_all, 1), nullptr);
  await();
  grpc::ByteBuffer reply;
  call->Read(&reply, nullptr);
  grpc::Slice bytes;
  if (await() && reply.DumpToSingleSlice(&bytes).ok()) {
    context.TryCancel();
    return {reinterpret_cast<const char*>(bytes.begin()), bytes.size()};
  }
  grpc::Status status;
  call->Finish(&status, nullptr);
  await();
  return absl::StrCat("code ", status.error_code());
}

TEST(Reflection, IsOfTheAdminPortAloneAndWhereItIsAskedFor) {
  const std::string none = absl::StrCat("code ", grpc::StatusCode::UNIMPLEMENTED);
  const auto with =
      ProcessCluster::Start({.nodes = 1, .coordinator_flags = {"--admin-reflection"}});
  ASSERT_THAT(with, IsOk());
  EXPECT_THAT(ServicesOf((*with)->admin_address()), HasSubstr("embla.v1.AdminService"));
  EXPECT_EQ(ServicesOf((*with)->coordinator_address()), none);
  EXPECT_EQ(ServicesOf((*with)->node_address(0)), none);
  const auto without = ProcessCluster::Start({.nodes = 0});
  ASSERT_THAT(without, IsOk());
  EXPECT_EQ(ServicesOf((*without)->admin_address()), none);
}

TEST(Readiness, ACoordinatorServesUntilItsStoreFails) {
  const auto started = ProcessCluster::Start(
      {.nodes = 0, .coordinator_environment = {"EMBLA_FAILPOINTS=file.sync=error@20"}});
  ASSERT_THAT(started, IsOk());
  ProcessCluster& cluster = **started;
  EXPECT_EQ(HealthOf(cluster.coordinator_address()), "SERVING");
  EXPECT_EQ(HealthOf(cluster.admin_address()), "SERVING");
  EXPECT_THAT(HttpGet(cluster.coordinator_metrics_address(), "/readyz"),
              StartsWith("HTTP/1.1 200"));

  const auto stub = v1::CoordinatorService::NewStub(
      grpc::CreateChannel(cluster.coordinator_address(), grpc::InsecureChannelCredentials()));
  grpc::Status status;
  for (int sessions = 0; status.ok() && sessions < 1000; ++sessions) {
    // Each is a commit.
    v1::OpenSessionRequest request;
    request.set_trainer(absl::StrCat("trainer", sessions));
    request.set_client_nonce(1);
    grpc::ClientContext context;
    v1::OpenSessionReply reply;
    status = stub->OpenSession(&context, request, &reply);
  }
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  const auto is_out = [&] { return HealthOf(cluster.coordinator_address()) == "NOT_SERVING"; };
  EXPECT_TRUE(AwaitFor(is_out, kAwaitMax, "the coordinator says that it does not serve"));
  EXPECT_EQ(HealthOf(cluster.admin_address()), "NOT_SERVING");
  const std::string missing = HttpGet(cluster.coordinator_metrics_address(), "/readyz");
  EXPECT_THAT(missing, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(missing, HasSubstr("failpoint file.sync"));
}

// The node tells once in 2 s, and its disk takes 1 s for every read: of a snapshot's segment, and
// then, while there is time to ask, of the journal's.
TEST(Readiness, ANodeThatRecoversSaysHowFarItHasCome) {
  ProcessCluster::Options options{.nodes = 1, .devices_per_node = 1};
  options.journals = true;
  options.shard_flags = {"--snapshot-after", "1MiB"};
  options.shard_environment = {"LD_PRELOAD=" EMBLA_SLOW_READ,
                               "ASAN_OPTIONS=verify_asan_link_order=0"};
  const auto started = ProcessCluster::Start(options);
  ASSERT_THAT(started, IsOk());
  ProcessCluster& cluster = **started;
  const auto admin = cluster.ConnectAdmin();
  ASSERT_THAT(admin, IsOk());
  ASSERT_THAT((*admin)->Call<v1::TableReply>(client::CreateTableRequest(
                  R"({"name": "t", "rows": 2000, "dim": 64, "optimizer": {"kind": "sgd"}})",
                  R"({"sharding": "table_wise"})")),
              IsOk());
  const auto client = cluster.Connect({.timeout = kAwaitMax});
  ASSERT_THAT(client, IsOk());
  std::vector<std::int64_t> ids(2000);
  std::iota(ids.begin(), ids.end(), 0);
  const std::vector<float> gradients(ids.size() * 64, 1.0f);
  const client::FeatureGradient feature{.table = "t", .ids = ids, .gradients = gradients};
  for (int i = 0; i < 6; ++i) ASSERT_THAT((*client)->Update({&feature, 1}, {}), IsOk());
  ASSERT_TRUE(AwaitFor(
      [&] {
        return MetricsText::Of(cluster.node_metrics_address(0))
                   .Value("embla_snapshots_total{outcome=\"taken\"}") > 0;
      },
      kAwaitMax, "a snapshot is taken"));
  cluster.KillNode(0);

  std::future<absl::Status> restarted =
      std::async(std::launch::async, [&] { return cluster.StartNode(0); });
  std::string answer;
  EXPECT_TRUE(AwaitFor(
      [&] {
        answer = HttpGet(cluster.node_metrics_address(0), "/readyz");
        return answer.find(" % of ") != std::string::npos;
      },
      kAwaitMax, "/readyz says how far the recovery has come"))
      << answer;
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(answer, HasSubstr("not ready: recovering the journal: "));
  EXPECT_THAT(answer, HasSubstr(", read at "));
  ASSERT_THAT(restarted.get(), IsOk());
  EXPECT_TRUE(AwaitFor(
      [&] {
        return HttpGet(cluster.node_metrics_address(0), "/readyz").starts_with("HTTP/1.1 200");
      },
      kAwaitMax, "the node serves"));
  EXPECT_EQ(MetricsText::Of(cluster.node_metrics_address(0)).Value("embla_journal_recovery_ratio"),
            1);
  const auto log = ReadFile(cluster.node_log(0));
  ASSERT_THAT(log, IsOk());
  EXPECT_THAT(*log, ContainsRegex("recovering progress=\"[0-9]+ % of .*\" records=[0-9]+"));
}

TEST(Logs, AreJsonWhereThatIsAsked) {
  const std::vector<std::string> json = {"--log-format=json"};
  const auto started = ProcessCluster::Start(
      {.nodes = 1, .devices_per_node = 1, .coordinator_flags = json, .shard_flags = json});
  ASSERT_THAT(started, IsOk());
  std::vector<std::string> messages;
  for (const std::string& line : std::vector<std::string>(
           absl::StrSplit((*started)->LogTails(), '\n', absl::SkipWhitespace()))) {
    if (line.starts_with("---")) continue;  // A heading.
    const auto parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(parsed.is_object()) << line;
    messages.push_back(parsed.at("component").get<std::string>() + ": " +
                       parsed.at("message").get<std::string>());
  }
  EXPECT_THAT(messages, ::testing::IsSupersetOf({"coordinator: serving", "shard: serving"}));
}

}  // namespace
}  // namespace embla::readiness_test
