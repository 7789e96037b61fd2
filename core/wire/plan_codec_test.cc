#include "core/wire/plan_codec.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace embla::wire {
namespace {

Plan OneNode() {
  const NodeSpec node{.id = NodeId{1},
                      .name = "n0",
                      .address = "127.0.0.1:1",
                      .devices = {{.kind = DeviceKind::kCpu, .memory_bytes = 1 << 20}}};
  return Plan(PlanVersion{4}, "cluster-a", {node}, {});
}

TEST(PlanCodec, RoundTrips) {
  const absl::StatusOr<PlanPtr> plan = FromMessage(ToMessage(OneNode()));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(**plan, OneNode());
}

TEST(PlanCodec, RefusesWhatDoesNotBelongTogether) {
  v1::Plan version = ToMessage(OneNode());
  version.set_version(5);
  v1::Plan cluster = ToMessage(OneNode());
  cluster.set_cluster_id("cluster-b");
  v1::Plan json = ToMessage(OneNode());
  json.set_json("{");
  for (const v1::Plan& message : {version, cluster, json}) {
    EXPECT_EQ(FromMessage(message).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace embla::wire
