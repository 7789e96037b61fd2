#include "core/plan/plan_json.h"

#include <bit>
#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include "core/base/testing/status_matchers.h"
#include "core/plan/json_fields.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

constexpr char kGolden[] = "tests/golden/plan_v1.json";

// The worked example of docs/plan_format.md.
Plan ExamplePlan() {
  const NodeSpec n0{.id = NodeId{1},
                    .name = "n0",
                    .address = "10.0.0.1:7000",
                    .devices = {{DeviceKind::kGpu, 80'000'000'000}, {DeviceKind::kCpu, 1 << 30}}};
  const NodeSpec n1{.id = NodeId{2},
                    .name = "n1",
                    .address = "10.0.0.2:7000",
                    .devices = {{DeviceKind::kCpu, 1 << 30}}};
  TablePlan clicks;
  clicks.spec = {.id = TableId{1}, .name = "clicks", .rows = 1000, .dim = 8};
  clicks.spec.dtype = DType::kFloat16;
  clicks.spec.row_granules = 10;
  clicks.spec.optimizer = {.kind = OptimizerKind::kAdam, .learning_rate = 0.001f};
  clicks.spec.optimizer.weight_decay = 0.1f;
  clicks.spec.optimizer.weight_decay_mode = WeightDecayMode::kDecoupled;
  clicks.spec.init = {.kind = InitKind::kUniform, .a = -0.05f, .b = 0.05f};
  clicks.spec.seed = 18446744073709551615u;
  clicks.spec.rounding = Rounding::kStochastic;
  clicks.spec.SetDefaults();
  clicks.sharding = ShardingType::kRowWise;
  clicks.replicas = {{{0, 400, 0, 8, {NodeId{1}, 0}},
                      {400, 700, 0, 8, {NodeId{1}, 1}},
                      {700, 1000, 0, 8, {NodeId{2}, 0}}}};
  TablePlan country;
  country.spec = {.id = TableId{3}, .name = "country", .rows = 250, .dim = 4};
  country.spec.SetDefaults();
  country.sharding = ShardingType::kDataParallel;
  country.replicas = {{{0, 250, 0, 4, {NodeId{2}, 0}}}, {{0, 250, 0, 4, {NodeId{1}, 1}}}};
  return Plan(PlanVersion{7}, "5f2c9a7e0b1d4c38a6e4f1029b7d3c55", {n0, n1}, {clicks, country});
}

std::string ReadGolden() {
  std::ifstream file(kGolden);
  EXPECT_TRUE(file.good()) << kGolden;
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

TEST(PlanJson, KeepsWhatIsKnownOfGpus) {
  NodeSpec node{.id = NodeId{1}, .name = "n", .address = "h:1", .devices = {}};
  node.devices = {{.kind = DeviceKind::kGpu,
                   .memory_bytes = 1 << 30,
                   .memory_bytes_per_second = 4'800'000'000'000,
                   .peer_access = true},
                  {.kind = DeviceKind::kCpu, .memory_bytes = 1 << 20}};
  const absl::StatusOr<NodeSpec> read = NodeSpecFromJson(NodeSpecToJson(node));
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(*read, node);
}

TEST(PlanJson, GoldenFileIsTheExamplePlan) {
  const std::string golden = ReadGolden();
  ASSERT_THAT(ExamplePlan().Validate(), IsOk());
  const absl::StatusOr<Plan> plan = PlanFromJson(golden);
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(*plan, ExamplePlan());
  // The file is laid out for people; apart from white space it is what is written.
  EXPECT_EQ(Json::parse(golden).dump(), PlanToJson(ExamplePlan()));
}

TEST(PlanJson, EveryPartRoundTripsExactly) {
  const Plan plan = ExamplePlan();
  EXPECT_EQ(*PlanFromJson(PlanToJson(plan)), plan);
  for (const TablePlan& table : plan.tables()) {
    EXPECT_EQ(*TablePlanFromJson(TablePlanToJson(table)), table);
    EXPECT_EQ(*TableSpecFromJson(TableSpecToJson(table.spec)), table.spec);
  }
  for (const NodeSpec& node : plan.nodes()) {
    EXPECT_EQ(*NodeSpecFromJson(NodeSpecToJson(node)), node);
  }
}

TEST(PlanJson, FractionsRoundTripBitByBitAndReadWell) {
  std::mt19937 random(11);
  for (int i = 0; i < 2000; ++i) {
    TableSpec spec{.name = "t", .rows = 1, .dim = 1};
    // Any finite positive fp32, denormals too.
    spec.optimizer.learning_rate =
        std::bit_cast<float>(static_cast<std::uint32_t>(random() & 0x7f7fffffu));
    const auto read = TableSpecFromJson(TableSpecToJson(spec));
    ASSERT_THAT(read, IsOk());
    ASSERT_EQ(std::bit_cast<std::uint32_t>(read->optimizer.learning_rate),
              std::bit_cast<std::uint32_t>(spec.optimizer.learning_rate));
  }
  EXPECT_THAT(TableSpecToJson({.name = "t", .rows = 1, .dim = 1}),
              HasSubstr("\"learning_rate\":0.01,"));
}

TEST(TableSpecJson, DurabilityIsLeftOutWhereItIsTheNodes) {
  TableSpec spec{.name = "t", .rows = 1, .dim = 1};
  EXPECT_THAT(TableSpecToJson(spec), ::testing::Not(HasSubstr("durability")));
  spec.durability = TableDurability::kWritten;
  EXPECT_THAT(TableSpecToJson(spec), HasSubstr(R"("durability":"written")"));
  EXPECT_EQ(*TableSpecFromJson(TableSpecToJson(spec)), spec);
  EXPECT_THAT(TableSpecFromJson(R"({"name": "t", "rows": 1, "dim": 1, "durability": "none"})"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("node, queued, written")));
}

TEST(TableSpecJson, CallersAreLeftOutWhereAllMayCall) {
  TableSpec spec{.name = "t", .rows = 1, .dim = 1};
  EXPECT_THAT(TableSpecToJson(spec), ::testing::Not(HasSubstr("callers")));
  spec.callers = {"t1", "t0"};
  EXPECT_THAT(TableSpecToJson(spec), HasSubstr(R"("callers":["t1","t0"])"));
  EXPECT_EQ(*TableSpecFromJson(TableSpecToJson(spec)), spec);
  EXPECT_THAT(TableSpecFromJson(R"({"name": "t", "rows": 1, "dim": 1, "callers": ["t0", 1]})"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("callers")));
}

TEST(TableSpecJson, NeedsOnlyNameRowsAndDim) {
  const auto spec = TableSpecFromJson(R"({"name": "t", "rows": 10, "dim": 4})");
  ASSERT_THAT(spec, IsOk());
  TableSpec expected{.name = "t", .rows = 10, .dim = 4};
  EXPECT_EQ(*spec, expected);
  EXPECT_EQ(TableSpecFromJson(R"({"name": "t", "rows": 10})").status().message(),
            "table field \"dim\": is missing");
}

struct BadText {
  const char* text;
  const char* says;
};

TEST(TableSpecJson, TellsWhichFieldIsWrong) {
  const BadText bad[] = {
      {"", "not valid JSON"},
      {"{", "not valid JSON"},
      {"[]", "table is array, not an object"},
      {"null", "not an object"},
      {R"({"name":"t","rows":10,"dim":4} x)", "not valid JSON"},
      {R"({"name":"t","rows":10,"dim":4,"dims":4})", "unknown field \"dims\"; known are"},
      {R"({"name":"t","rows":10,"dim":4,"dim":8})", "\"dim\" is given twice"},
      {R"({"name":"t","rows":-1,"dim":4})", "field \"rows\": is not an integer of 1 to"},
      {R"({"name":"t","rows":18446744073709551615,"dim":4})", "field \"rows\""},
      {R"({"name":"t","rows":99999999999999999999,"dim":4})", "field \"rows\""},
      {R"({"name":"t","rows":10.0,"dim":4})", "field \"rows\""},
      {R"({"name":"t","rows":"10","dim":4})", "field \"rows\""},
      {R"({"name":"t","rows":10,"dim":4294967300})", "field \"dim\""},
      {R"({"name":7,"rows":10,"dim":4})", "field \"name\": is not a string"},
      {R"({"name":"t","rows":10,"dim":4,"dtype":"fp8"})", "\"fp8\" is not one of fp32"},
      {R"({"name":"t","rows":10,"dim":4,"seed":-1})", "field \"seed\""},
      {R"({"name":"t","rows":10,"dim":4,"optimizer":[]})", "field \"optimizer\": is not an object"},
      {R"({"name":"t","rows":10,"dim":4,"optimizer":{"lr":1}})", "unknown field \"lr\""},
      {R"({"name":"t","rows":10,"dim":4,"optimizer":{"eps":"1"}})", "\"eps\": is not a number"},
      {R"({"name":"t","rows":10,"dim":4,"optimizer":{"eps":1e99}})", "not valid JSON"},
      {R"({"name":"t","rows":10,"dim":4,"init":{"a":NaN}})", "not valid JSON"},
  };
  for (const BadText& entry : bad) {
    const absl::Status status = TableSpecFromJson(entry.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << entry.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(entry.says)) << entry.text;
  }
}

// Its members changed twice, and a third change is open.
TablePlan SteppedTable() {
  TablePlan table = ExamplePlan().tables().front();
  table.spec.sync =
      SyncSpec{.step_timeout_ms = 500, .on_silence = OnSilence::kFail, .steps_ahead_max = 3};
  table.steps = {.version = PlanVersion{7},
                 .members = {{.first_step = 0, .ranks = {Rank{0}, Rank{1}}},
                             {.first_step = 9, .ranks = {Rank{0}}, .optional = {Rank{1}}},
                             {.first_step = 18446744073709551615u}},
                 .changes = 3,
                 .open = MemberChange{.number = 3,
                                      .kind = MemberChange::Kind::kJoin,
                                      .step = 12,
                                      .ranks = {Rank{1}, Rank{4095}}}};
  return table;
}

TEST(TablePlanJson, StepsRoundTripExactlyAndAreLeftOutOfOtherTables) {
  const TablePlan table = SteppedTable();
  const auto read = TablePlanFromJson(TablePlanToJson(table));
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(*read, table);
  const auto steps = StepPlanFromJson(StepPlanToJson(table.steps));
  ASSERT_THAT(steps, IsOk());
  EXPECT_EQ(*steps, table.steps);
  const std::string plain = TablePlanToJson(ExamplePlan().tables().front());
  EXPECT_THAT(plain, ::testing::Not(HasSubstr("sync\"")));
  EXPECT_THAT(plain, ::testing::Not(HasSubstr("steps\"")));
}

TEST(TableSpecJson, SyncWithoutFieldsIsTheDefault) {
  const auto spec = TableSpecFromJson(R"({"name": "t", "rows": 10, "dim": 4, "sync": {}})");
  ASSERT_THAT(spec, IsOk());
  EXPECT_EQ(spec->sync, SyncSpec());
}

TEST(TablePlanJson, TellsWhatIsWrongAboutSteps) {
  struct Case {
    const char* what;
    const char* replaced;
    const char* by;
    const char* says;
  };
  const Case cases[] = {
      {"a word that is none", R"("on_silence":"fail")", R"("on_silence":"wait")", "\"wait\""},
      {"a timeout out of range", R"("step_timeout_ms":500)", R"("step_timeout_ms":5)",
       "step_timeout_ms"},
      {"an unknown field", R"("steps_ahead_max":3)", R"("steps_ahead":3)", "\"steps_ahead\""},
      {"no sync", R"(,"sync":{"step_timeout_ms":500,"on_silence":"fail","steps_ahead_max":3})", "",
       "no synchronous steps"},
      {"ranks that descend", R"("ranks":[0,1])", R"("ranks":[1,0])", "ranks are not ascending"},
      {"a rank twice", R"("ranks":[0,1])", R"("ranks":[1,1])", "ranks are not ascending"},
      {"a negative rank", R"("ranks":[0,1])", R"("ranks":[-1,1])", "ranks are not ascending"},
      {"a rank beyond 32 bits", R"("ranks":[0,1])", R"("ranks":[0,4294967296])",
       "ranks are not ascending"},
      {"entries that descend", R"("first_step":9)", R"("first_step":0)", "members of steps"},
      {"an open change of nobody", R"("ranks":[1,4095])", R"("ranks":[])", "no ranks"},
      {"a change that is none", R"("kind":"join")", R"("kind":"leave")", "\"leave\""},
  };
  for (const Case& c : cases) {
    std::string text = TablePlanToJson(SteppedTable());
    const std::size_t at = text.find(c.replaced);
    ASSERT_NE(at, std::string::npos) << c.what << ": " << text;
    text.replace(at, std::string(c.replaced).size(), c.by);
    const absl::Status status = TablePlanFromJson(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.what;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.says)) << c.what;
  }
}

TEST(PlanJson, RefusesAPlanThatDoesNotHoldTogether) {
  std::string text = PlanToJson(ExamplePlan());
  const std::string whole = "\"rows\":[400,700]";
  ASSERT_NE(text.find(whole), std::string::npos);
  text.replace(text.find(whole), whole.size(), "\"rows\":[400,600]");
  EXPECT_THAT(std::string(PlanFromJson(text).status().message()),
              HasSubstr("rows 600-700 x columns 0-8 belong to no slice"));
}

TEST(PlanJson, RefusesDeepNesting) {
  const int depth = 100'000;
  const std::string text = std::string(depth, '[') + std::string(depth, ']');
  EXPECT_THAT(std::string(PlanFromJson(text).status().message()), HasSubstr("nested deeper"));
  const std::string objects = [&] {
    std::string result;
    for (int i = 0; i < depth; ++i) result += "{\"a\":";
    return result;
  }();
  EXPECT_THAT(PlanFromJson(objects), StatusIs(absl::StatusCode::kInvalidArgument));
}

// Bytes changed, removed, doubled and swapped for JSON's own words: never a crash, and what is
// accepted is a valid plan.
TEST(PlanJson, TenThousandMutationsAreReadOrRefused) {
  const std::string original = PlanToJson(ExamplePlan());
  const std::string words[] = {"{",       "}",    "[",        "]",
                               "\"",      ",",    ":",        "-1",
                               "1e9",     "null", "true",     "18446744073709551616",
                               "\\u0000", "\xff", "\"rows\"", "0"};
  const unsigned seed = 42;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  int accepted = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::string text = original;
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes) {
      const std::size_t at = random() % text.size();
      const std::size_t length = random() % 4 == 0 ? random() % 64 : 1;
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), length));
          break;
        default:
          text.replace(at, length, words[random() % std::size(words)]);
      }
      if (text.empty()) text = "0";
    }
    const absl::StatusOr<Plan> plan = PlanFromJson(text);
    if (!plan.ok()) continue;
    ++accepted;
    ASSERT_THAT(plan->Validate(), IsOk());
    ASSERT_EQ(*PlanFromJson(PlanToJson(*plan)), *plan);
  }
  EXPECT_LT(accepted, 5000);
}

TEST(TablePlanJson, KeepsWhetherTheTableIsKeptAsideAndLeavesItOutOtherwise) {
  TablePlan table = ExamplePlan().tables().front();
  EXPECT_THAT(TablePlanToJson(table), ::testing::Not(HasSubstr("aside")));
  table.aside = true;
  const auto read = TablePlanFromJson(TablePlanToJson(table));
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(*read, table);
}

}  // namespace
}  // namespace embla
