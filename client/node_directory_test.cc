#include "client/node_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace embla::client {
namespace {

// Counts how many of its kind there are; answers nothing.
class SilentChannel final : public NodeChannel {
 public:
  explicit SilentChannel(int& alive) : alive_(alive) { ++alive_; }
  ~SilentChannel() override { --alive_; }

  SocketPtr Lookup(NodeLookup, absl::Time, Done) override { return nullptr; }
  SocketPtr Update(NodeUpdate, absl::Time, Done) override { return nullptr; }
  absl::Status ReadRows(const RowsQuery&, absl::Time, const RowBlockSink&) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<std::vector<TableSync>> Sync(const SyncQuery&, absl::Time) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<IdExplanation> ExplainId(TableId, std::int64_t, absl::Time) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<TableSurvey> SurveyTable(TableId, std::uint64_t, absl::Time) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<SweepReply> SweepTable(const SweepQuery&, absl::Time) override {
    return absl::UnimplementedError("");
  }
  absl::Status ReadEvictions(TableId, bool, EvictionsPosition&, absl::Time,
                             const EvictionsSink&) override {
    return absl::UnimplementedError("");
  }
  void Close() override {}

 private:
  int& alive_;
};

Plan PlanWith(std::uint64_t version, const std::string& address) {
  return Plan(PlanVersion{version}, "c", {{.id = NodeId{1}, .name = "n0", .address = address}}, {});
}

TEST(NodeDirectory, ANodeThatComesBackElsewhereLeavesNoChannelBehind) {
  int alive = 0;
  NodeDirectory nodes([&alive](const NodeSpec&) { return std::make_unique<SilentChannel>(alive); });
  for (std::uint64_t version = 1; version <= 1000; ++version) {
    nodes.Install(PlanWith(version, absl::StrCat("10.0.0.1:", version)));
  }
  EXPECT_LE(alive, 2) << "the present one, and the one closed last";
  EXPECT_LE(nodes.closed_count(), 1u);
}

TEST(NodeDirectory, AClosedChannelStaysWhileSomebodyHoldsIt) {
  int alive = 0;
  NodeDirectory nodes([&alive](const NodeSpec&) { return std::make_unique<SilentChannel>(alive); });
  nodes.Install(PlanWith(1, "a:1"));
  std::shared_ptr<NodeChannel> held = nodes.Find(NodeId{1});
  nodes.Install(PlanWith(2, "b:1"));
  nodes.Install(PlanWith(3, "b:1"));
  EXPECT_EQ(alive, 2);
  EXPECT_NE(nodes.Find(NodeId{1}), held);
  held.reset();
  nodes.Install(PlanWith(4, "b:1"));
  EXPECT_EQ(alive, 1);
}

// A thread of the channel's own may hold it last, for which the channel waits.
TEST(NodeDirectory, AChannelThatSomebodyHoldsEndsWithTheDirectory) {
  int alive = 0;
  std::shared_ptr<NodeChannel> held;
  {
    NodeDirectory nodes(
        [&alive](const NodeSpec&) { return std::make_unique<SilentChannel>(alive); });
    nodes.Install(PlanWith(1, "a:1"));
    held = nodes.Find(NodeId{1});
  }
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace embla::client
