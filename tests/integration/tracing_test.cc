// A trace over processes: one call of a client, the messages to both nodes, and what each did.
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/testing/log_lines.h"
#include "core/base/testing/status_matchers.h"
#include "tests/testing/process_cluster.h"

namespace embla::tracing_test {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::LinesWith;
using ::embla::testing::ProcessCluster;
using ::testing::MatchesRegex;
using ::testing::SizeIs;

using Line = std::map<std::string, std::string>;

constexpr char kTraceId[] = "0af7651916cd43dd8448eb211c80319c";

// Returns a node's lines about its requests.
std::vector<Line> LinesOf(const ProcessCluster& cluster, int node) {
  const auto log = ReadFile(cluster.node_log(node));
  EXPECT_THAT(log, IsOk());
  return LinesWith(log.value_or(""), "traced request ");
}

class Tracing : public ::testing::TestWithParam<client::Transport> {};

TEST_P(Tracing, FollowsACallToBothNodesAndTheirDevices) {
  const auto cluster =
      ProcessCluster::Start({.nodes = 2, .shard_flags = {"--memory-per-device", "64MiB"}});
  ASSERT_THAT(cluster, IsOk());
  const auto [created, code] = (*cluster)->Embla(
      "table create --name t --rows 64 --dim 4 --sharding row_wise --optimizer sgd");
  ASSERT_EQ(code, 0) << created;
  std::string traceparent;
  const auto connected = (*cluster)->Connect(
      {.transport = GetParam(), .traceparent = [&traceparent] { return traceparent; }});
  ASSERT_THAT(connected, IsOk());
  client::Client& client = **connected;

  std::vector<std::int64_t> ids(64);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
  std::vector<float> rows(ids.size() * 4);
  const client::FeatureLookup lookup{.table = "t", .ids = ids, .rows_out = rows};
  ASSERT_THAT(client.Lookup({&lookup, 1}, {}), IsOk());  // Belongs to no trace.
  traceparent = absl::StrCat("00-", kTraceId, "-b7ad6b7169203331-01");
  ::testing::internal::CaptureStderr();
  ASSERT_THAT(client.Lookup({&lookup, 1}, {}), IsOk());
  const std::string log = ::testing::internal::GetCapturedStderr();

  std::vector<Line> calls = LinesWith(log, "traced call ");
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_EQ(calls[0]["trace_id"], kTraceId);
  EXPECT_EQ(calls[0]["parent_id"], "b7ad6b7169203331");
  std::map<std::string, std::string> message_to;  // Its span, by node.
  for (Line& message : LinesWith(log, "traced message ")) {
    EXPECT_EQ(message["trace_id"], kTraceId);
    EXPECT_EQ(message["parent_id"], calls[0]["span_id"]);
    message_to[message["node"]] = message["span_id"];
  }
  ASSERT_THAT(message_to, SizeIs(2));
  for (int node = 0; node < 2; ++node) {
    std::vector<Line> requests = LinesOf(**cluster, node);
    ASSERT_THAT(requests, SizeIs(1));
    EXPECT_EQ(requests[0]["trace_id"], kTraceId);
    EXPECT_EQ(requests[0]["parent_id"], message_to[(*cluster)->node_name(node)]);
    EXPECT_EQ(requests[0]["tables"], "t");
    EXPECT_EQ(requests[0]["rows"], "32");
    EXPECT_THAT(requests[0]["device_seconds"], MatchesRegex("0:[0-9.]+,1:[0-9.]+"));
  }
}

INSTANTIATE_TEST_SUITE_P(ByTransport, Tracing,
                         ::testing::Values(client::Transport::kStream, client::Transport::kUnary),
                         [](const auto& info) {
                           return info.param == client::Transport::kStream ? "Stream" : "Unary";
                         });

}  // namespace
}  // namespace embla::tracing_test
