#include "tools/embla/log_cmd.h"

#include <sstream>
#include <string>

#include "client/include/embla/testing/unimplemented_client.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::cli {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

struct LogVerbsTest : public ::testing::Test {
  LogVerbsTest() {
    admin.On<v1::SetLogLevelRequest, v1::SetLogLevelReply>(
        [this](const auto& request, auto& reply) {
          asked = request;
          reply.add_servers("coordinator");
          reply.add_servers("n1");
          reply.add_left_out("n2");
          return absl::OkStatus();
        });
    admin.On<v1::GetClusterStatusRequest, v1::ClusterStatus>([](const auto&, auto& reply) {
      reply.set_log_level(v1::LOG_LEVEL_ERROR);
      return absl::OkStatus();
    });
    admin.On<v1::ListNodesRequest, v1::ListNodesReply>([](const auto&, auto& reply) {
      for (const char* const name : {"n1", "n2", "old"}) {
        v1::NodeStatus& node = *reply.add_nodes();
        node.set_node_json(std::string(R"({"id": 1, "name": ")") + name +
                           R"(", "address": "127.0.0.1:1",)"
                           R"( "devices": [{"kind": "cpu", "memory_bytes": 1024}]})");
        node.set_live(std::string(name) != "n2");
        if (node.live() && std::string(name) != "old") node.set_log_level(v1::LOG_LEVEL_INFO);
      }
      return absl::OkStatus();
    });
  }

  client::testing::FakeAdmin admin;
  v1::SetLogLevelRequest asked;
  std::ostringstream out;
};

TEST_F(LogVerbsTest, LevelSaysWhoWasToldAndWhoIsDown) {
  ASSERT_THAT(LogLevelVerb(admin, "", "warning", {.out = out}), IsOk());
  EXPECT_EQ(asked.level(), v1::LOG_LEVEL_WARNING);
  EXPECT_EQ(asked.server(), "");
  EXPECT_EQ(out.str(), "warning: coordinator, n1\ndown: n2\n");
  ASSERT_THAT(LogLevelVerb(admin, "n1", "info", {.json = true, .out = out}), IsOk());
  EXPECT_EQ(asked.server(), "n1");
  EXPECT_THAT(out.str(), HasSubstr("\"left_out\""));
}

TEST_F(LogVerbsTest, LevelRefusesWordsThatAreNone) {
  for (const char* const word : {"", "debug", "unspecified"}) {
    EXPECT_THAT(LogLevelVerb(admin, "", word, {.out = out}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("is not one of info, warning, error")));
  }
}

TEST_F(LogVerbsTest, LsHasEveryServer) {
  ASSERT_THAT(LogListVerb(admin, {.out = out}), IsOk());
  EXPECT_THAT(out.str(), ContainsRegex("coordinator +error\nn1 +info\nn2 +down\nold +-\n"));
}

}  // namespace
}  // namespace embla::cli
