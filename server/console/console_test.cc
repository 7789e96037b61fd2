#include "server/console/console.h"
#include "core/base/clock.h"

#include <atomic>
#include <memory>
#include <semaphore>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/file.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/console/console_pages.h"
#include "server/state_store/memory_state_store.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::TempDirectory;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;
using Json = nlohmann::json;

constexpr absl::Duration kLimit = absl::Seconds(30);

WebRequest Local(std::map<std::string, std::string> parameters = {}) {
  return {.is_loopback = true, .host = "127.0.0.1:9090", .parameters = std::move(parameters)};
}

WebRequest OverTls(Role role) {
  return {.is_over_tls = true, .caller = Identity{"c", role, "x"}, .host = "c0.example"};
}

class ConsoleTest : public ::testing::Test {
 protected:
  ConsoleTest() {
    CoordinatorOptions options;
    options.new_cluster_id = "test-cluster";
    auto coordinator = Coordinator::Open(store_, options, Clock::Real().Now());
    EXPECT_THAT(coordinator, IsOk());
    host_ = std::make_unique<CoordinatorHost>(*std::move(coordinator), CoordinatorHostOptions(),
                                              Clock::Real(), nullptr);
  }

  WebAnswer Get(const std::string& path, const WebRequest& request = Local()) {
    for (const WebRoute& route : console_.Routes()) {
      if (route.path == "/console/" + path) return route.answer(request);
    }
    ADD_FAILURE() << "no route " << path;
    return {};
  }

  // Keeps the coordinator's thread from doing anything until Release.
  void Hold() {
    host_->Post(
        [this](Coordinator&, absl::Time) {
          held_.release();
          released_.acquire();
        },
        [](const absl::Status&) {});
    held_.acquire();
  }
  void Release() { released_.release(); }

  MemoryStateStore store_;
  std::binary_semaphore held_{0};
  std::binary_semaphore released_{0};
  Console console_;
  std::unique_ptr<CoordinatorHost> host_;
};

TEST_F(ConsoleTest, ServesThePageItsPartsAndItsDocuments) {
  console_.Lead(*host_, "");
  std::set<std::string_view> names;
  for (const ConsolePage& page : ConsolePages()) {
    names.insert(page.name);
    const WebAnswer answer = Get(std::string(page.name));
    EXPECT_EQ(answer.status, 200) << page.name;
    EXPECT_FALSE(answer.body.empty()) << page.name;
    EXPECT_FALSE(answer.type.empty()) << page.name;
  }
  EXPECT_THAT(names, Contains(""));
  EXPECT_THAT(Get("").body, HasSubstr("<!doctype html>"));
  const WebAnswer state = Get("state.json");
  EXPECT_EQ(state.status, 200);
  EXPECT_EQ(state.type, "application/json");
  EXPECT_EQ(Json::parse(state.body)["cluster"]["id"], "test-cluster");
  EXPECT_EQ(Json::parse(Get("tables.json").body)["total"], 0);
  EXPECT_EQ(Get("table.json", Local({{"id", "1"}})).status, 404);
  EXPECT_EQ(Get("table.json", Local({{"id", "x"}})).status, 400);
  EXPECT_EQ(Get("device.json", Local({{"node", "1"}})).status, 404);
  EXPECT_EQ(Get("job.json", Local({{"id", "1"}})).status, 404);
  const WebAnswer audit = Get("audit.json");
  EXPECT_EQ(audit.status, 404);
  EXPECT_THAT(audit.body, HasSubstr("--audit-log"));
}

TEST_F(ConsoleTest, ThePageLoadsNothingFromElsewhereAndRunsNothingInline) {
  EXPECT_THAT(Get("").headers, Contains(Pair("Content-Security-Policy",
                                             HasSubstr("default-src 'self'; base-uri 'none'"))));
  EXPECT_THAT(Get("state.json").headers, Contains(Pair("X-Content-Type-Options", "nosniff")));
  for (const ConsolePage& page : ConsolePages()) {
    const std::string content(page.content);
    for (const char* outside : {"src=\"http", "href=\"http", "url(http", "import 'http"}) {
      EXPECT_EQ(content.find(outside), std::string::npos) << page.name << " has " << outside;
    }
    for (const char* markup : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
                               "onclick=", "<style", "eval("}) {
      EXPECT_EQ(content.find(markup), std::string::npos) << page.name << " has " << markup;
    }
  }
}

TEST_F(ConsoleTest, IsForRolesThatMayReadAndTheAuditLogForThoseThatOperate) {
  const TempDirectory directory;
  ASSERT_THAT(AtomicWriteFile(directory.path() + "/audit", "{\"who\": \"ann\"}\n"), IsOk());
  console_.Lead(*host_, directory.path() + "/audit");
  for (const Role role : {Role::kTrainer, Role::kReader, Role::kOperator, Role::kAdmin}) {
    EXPECT_EQ(Get("", OverTls(role)).status, 200) << NameOf(role);
    EXPECT_EQ(Get("state.json", OverTls(role)).status, 200) << NameOf(role);
    const bool operates = role == Role::kOperator || role == Role::kAdmin;
    EXPECT_EQ(Get("audit.json", OverTls(role)).status, operates ? 200 : 403) << NameOf(role);
  }
  WebRequest nobody = OverTls(Role::kReader);
  nobody.caller.reset();
  for (const WebRequest& request : {OverTls(Role::kNode), OverTls(Role::kCoordinator), nobody}) {
    for (const char* path : {"", "console.js", "state.json", "tables.json", "table.json",
                             "device.json", "job.json", "audit.json"}) {
      const WebAnswer answer = Get(path, request);
      EXPECT_EQ(answer.status, 403) << path;
      EXPECT_THAT(answer.body, HasSubstr("operator, admin")) << path;
    }
  }
  EXPECT_EQ(Json::parse(Get("audit.json").body)["calls"][0]["who"], "ann");
}

TEST_F(ConsoleTest, APageFromElsewhereThatPointsItsNameHereGetsNothing) {
  console_.Lead(*host_, "");
  WebRequest request = Local();
  for (const char* host : {"localhost:9090", "127.0.0.1", "[::1]:9090", ""}) {
    request.host = host;
    EXPECT_EQ(Get("state.json", request).status, 200) << host;
  }
  for (const char* host : {"evil.example:9090", "127.0.0.1.evil.example", "localhost.evil"}) {
    request.host = host;
    EXPECT_EQ(Get("state.json", request).status, 421) << host;
    EXPECT_EQ(Get("", request).status, 421) << host;
  }
  request.is_loopback = false;  // --insecure: other machines may use names.
  EXPECT_EQ(Get("state.json", request).status, 200);
}

TEST_F(ConsoleTest, ManyWhoPollGetTheSameDocument) {
  console_.Lead(*host_, "");
  const absl::Time begun = Clock::Real().Now();
  std::set<std::string> documents;
  for (int i = 0; i < 1000; ++i) documents.insert(Get("state.json").body);
  EXPECT_LE(documents.size(), 2 + (Clock::Real().Now() - begun) / Console::kStateAge);
}

TEST_F(ConsoleTest, OneRequestWaitsForABusyCoordinatorAndTheOthersDoNot) {
  console_.Lead(*host_, "");
  Hold();
  const absl::Time begun = Clock::Real().Now();
  std::atomic<int> waited = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 20; ++i) {
    callers.emplace_back([&] {
      const absl::Time asked = Clock::Real().Now();
      EXPECT_EQ(Get("state.json").status, 503);
      if (Clock::Real().Now() - asked >= Console::kWait) ++waited;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(waited, 1);
  EXPECT_LT(Clock::Real().Now() - begun, 10 * Console::kWait);
  Release();
  EXPECT_TRUE(AwaitFor([&] { return Get("state.json").status == 200; }, kLimit, "it answers"));
}

TEST_F(ConsoleTest, WhoStopsLeadingIsAskedNoMore) {
  console_.Lead(*host_, "");
  Hold();
  std::thread caller([&] { Get("state.json"); });
  std::thread leaver([&] {
    console_.Leave();
    EXPECT_EQ(Get("tables.json").status, 503);
  });
  Release();
  caller.join();
  leaver.join();
  host_.reset();
  EXPECT_EQ(Get("state.json").status, 503);
  EXPECT_EQ(Get("job.json", Local({{"id", "1"}})).status, 503);
}

TEST(ConsoleOfAStandby, SaysWhoLeads) {
  Console console(
      [] { return StandbyFacts{.coordinator = "c1:7070", .console = "https://c1:9090/console/"}; });
  for (const WebRoute& route : console.Routes()) {
    if (route.path != "/console/state.json") continue;
    const Json json = Json::parse(route.answer(Local()).body);
    EXPECT_EQ(json["role"], "standby");
    EXPECT_EQ(json["leader"]["console"], "https://c1:9090/console/");
  }
}

TEST(ConsolePath, WithoutItsSlashLeadsToThePage) {
  Console console;
  const WebRoute route = console.Routes().front();
  EXPECT_EQ(route.path, "/console");
  EXPECT_EQ(route.answer(Local()).status, 302);
}

}  // namespace
}  // namespace embla
