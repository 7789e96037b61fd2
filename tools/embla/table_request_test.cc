#include "tools/embla/table_request.h"

#include <string>

#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::cli {
namespace {

using ::embla::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TableRequest, FlagsFillSpecAndPlacement) {
  TableFlags flags;
  flags.name = "clicks";
  flags.rows = 1000;
  flags.dim = 64;
  flags.dtype = "bf16";
  flags.durability = "synced";
  flags.optimizer = "adam";
  flags.numbers.learning_rate = 0.5f;
  flags.sharding = "grid_shard";
  flags.nodes = {"n0", "n1"};
  flags.min_partition = 32;

  const auto requests = RequestsFromFlags(flags);
  ASSERT_THAT(requests, IsOk());
  ASSERT_EQ(requests->size(), 1u);
  const TableRequest& request = requests->front();
  EXPECT_EQ(request.spec.name, "clicks");
  EXPECT_EQ(request.spec.dtype, DType::kBFloat16);
  EXPECT_EQ(request.spec.durability, TableDurability::kSynced);
  EXPECT_EQ(request.spec.optimizer.kind, OptimizerKind::kAdam);
  EXPECT_EQ(request.spec.optimizer.learning_rate, 0.5f);
  EXPECT_EQ(request.placement.sharding, ShardingType::kGridShard);
  EXPECT_THAT(request.placement.nodes, ElementsAre("n0", "n1"));
  EXPECT_EQ(request.placement.min_partition, 32u);
}

TEST(TableRequest, FlagsMustSayTheSharding) {
  TableFlags flags;
  flags.name = "clicks";
  flags.rows = 1000;
  flags.dim = 64;
  EXPECT_THAT(Message(RequestsFromFlags(flags).status()), HasSubstr("--sharding is missing"));
  flags.sharding = "row-wise";
  EXPECT_THAT(Message(RequestsFromFlags(flags).status()), HasSubstr("row_wise"));
}

TEST(TableRequest, SyncFlagsMakeATableWithSynchronousSteps) {
  TableFlags flags;
  flags.name = "clicks";
  flags.rows = 1000;
  flags.dim = 64;
  flags.sharding = "row_wise";
  flags.sync = true;
  auto requests = RequestsFromFlags(flags);
  ASSERT_THAT(requests, IsOk());
  EXPECT_EQ(requests->front().spec.sync, SyncSpec());
  flags.step_timeout_ms = 2000;
  flags.on_silence = "fail";
  flags.steps_ahead = 2;
  requests = RequestsFromFlags(flags);
  ASSERT_THAT(requests, IsOk());
  EXPECT_EQ(
      requests->front().spec.sync,
      (SyncSpec{.step_timeout_ms = 2000, .on_silence = OnSilence::kFail, .steps_ahead_max = 2}));
  flags.steps_ahead = 0;
  EXPECT_THAT(Message(RequestsFromFlags(flags).status()), HasSubstr("steps_ahead_max"));
  flags.on_silence = "wait";
  EXPECT_THAT(Message(RequestsFromFlags(flags).status()), HasSubstr("close, fail"));
  flags.sync = false;
  EXPECT_THAT(Message(RequestsFromFlags(flags).status()), HasSubstr("--sync"));
}

TEST(TableRequest, AFileMaySaySync) {
  const auto requests = RequestsFromText(
      "name: t\nrows: 10\ndim: 4\nsync: {on_silence: fail, step_timeout_ms: 1000}\n"
      "placement: {sharding: row_wise}\n");
  ASSERT_THAT(requests, IsOk());
  EXPECT_EQ(requests->front().spec.sync,
            (SyncSpec{.step_timeout_ms = 1000, .on_silence = OnSilence::kFail}));
}

TEST(TableRequest, ZchFlagsMakeAZchTable) {
  TableFlags flags;
  flags.name = "users";
  flags.dim = 8;
  flags.sharding = "row_wise";
  flags.zch = {.zch = true,
               .capacity = 1000,
               .buckets = 2,
               .policy = "ttl:9:evict",
               .admission = "count:3",
               .unseen = "zero"};
  const auto requests = RequestsFromFlags(flags);
  ASSERT_THAT(requests, IsOk());
  const TableSpec& spec = requests->front().spec;
  EXPECT_EQ(spec.rows, 1000);
  EXPECT_EQ(*spec.zch, (ZchSpec{.buckets = 2,
                                .policy = zch::Policy::kTtl,
                                .ttl_steps = 9,
                                .evict_unexpired = true,
                                .admission = zch::Admission::kCount,
                                .admission_count = 3,
                                .unseen = zch::Unseen::kZero}));
}

TEST(TableRequest, WrongZchFlagsAreRefused) {
  for (const ZchFlags& wrong :
       {ZchFlags{.capacity = 5}, ZchFlags{.zch = true, .policy = "ttl"},
        ZchFlags{.zch = true, .policy = "lru:2"}, ZchFlags{.zch = true, .policy = "ttl:1:keep"},
        ZchFlags{.zch = true, .admission = "count"}, ZchFlags{.zch = true, .admission = "all:1"},
        ZchFlags{.zch = true, .admission = "count:x"}, ZchFlags{.zch = true, .unseen = "one"}}) {
    EXPECT_EQ(ZchFromFlags(wrong).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

constexpr char kYaml[] = R"(
- name: clicks
  rows: 1000000
  dim: 64
  optimizer: {kind: adagrad, learning_rate: 0.05}
  placement: {sharding: row_wise}
- name: "007"
  rows: 10
  dim: 4
  durability: queued
  placement:
    sharding: table_wise
    nodes: [n1]
    devices: [0, 1]
)";

TEST(TableRequest, YamlHoldsOneTableOrAList) {
  const auto requests = RequestsFromText(kYaml);
  ASSERT_THAT(requests, IsOk());
  ASSERT_EQ(requests->size(), 2u);
  EXPECT_EQ((*requests)[0].spec.optimizer.kind, OptimizerKind::kAdagrad);
  EXPECT_EQ((*requests)[0].spec.optimizer.learning_rate, 0.05f);
  EXPECT_EQ((*requests)[1].spec.name, "007");
  EXPECT_EQ((*requests)[1].spec.durability, TableDurability::kQueued);
  EXPECT_THAT((*requests)[1].placement.nodes, ElementsAre("n1"));
  EXPECT_THAT((*requests)[1].placement.devices, ElementsAre(0u, 1u));
}

TEST(TableRequest, JsonIsReadTheSameWay) {
  const auto requests = RequestsFromText(
      R"({"name": "t", "rows": 5, "dim": 3, "placement": {"sharding": "column_wise"}})");
  ASSERT_THAT(requests, IsOk());
  EXPECT_EQ(requests->front().spec.rows, 5);
}

struct Wrong {
  const char* text;
  const char* part;  // Part of the message.
};

TEST(TableRequest, WrongFilesAreRefusedWithTheReason) {
  const Wrong wrongs[] = {
      {"", "not an object"},
      {"[]", "no table"},
      {"name: [", "line"},
      {"{name: t, rows: 5, dim: 3}", "placement is missing"},
      {"{name: t, rows: 5, dim: 3, placement: {}}", "\"sharding\": is missing"},
      {"{name: t, rows: 5, dim: 3, placement: {sharding: 3}}", "placement"},
      {"{name: t, rows: 5, dim: 3, placement: {sharding: row_wise, node: n0}}", "\"node\""},
      {"{name: t, rows: 5, dim: 3, lr: 1, placement: {sharding: row_wise}}", "lr"},
      {"{name: t, rows: 0, dim: 3, placement: {sharding: row_wise}}", "rows"},
      {"{name: t, rows: 5, dim: 9999, placement: {sharding: row_wise}}", "dim"},
      {"{name: t, name: u, rows: 5, dim: 3, placement: {sharding: row_wise}}", "twice"},
  };
  for (const Wrong& wrong : wrongs) {
    const auto requests = RequestsFromText(wrong.text);
    EXPECT_EQ(requests.status().code(), absl::StatusCode::kInvalidArgument) << wrong.text;
    EXPECT_THAT(Message(requests.status()), HasSubstr(wrong.part)) << wrong.text;
  }
}

TEST(TableRequest, DeepFilesAreRefused) {
  const std::string deep = std::string(200, '[') + std::string(200, ']');
  EXPECT_EQ(RequestsFromText(deep).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TableRequest, MissingFileIsNotFound) {
  TableFlags flags;
  flags.file = "/nonexistent/table.yaml";
  EXPECT_EQ(RequestsFromFlags(flags).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace embla::cli
