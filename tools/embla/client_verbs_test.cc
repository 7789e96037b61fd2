// The verbs that ask nodes, against a client of a few lines.
#include <algorithm>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "client/include/embla/testing/unimplemented_client.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/embla/exit_code.h"
#include "tools/embla/id_cmd.h"
#include "tools/embla/lookup_cmd.h"
#include "tools/embla/plan_view.h"
#include "tools/embla/table_cmd.h"
#include "tools/embla/zch_cmd.h"

namespace embla::cli {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;

// Row i of table "clicks" is i, i + 0.1.
class FakeClient final : public client::testing::UnimplementedClient {
 public:
  std::string evicted_reason = "replaced";
  std::uint64_t evictions_known_since = 0;

  absl::Status Lookup(std::span<const client::FeatureLookup> features,
                      const client::CallOptions&) override {
    const client::FeatureLookup& feature = features.front();
    std::fill(feature.rows_out.begin(), feature.rows_out.end(), 0.0f);
    for (std::size_t i = 0; i < feature.ids.size(); ++i) {
      const std::size_t row = feature.pooling == client::Pooling::kNone ? i : 0;
      feature.rows_out[2 * row] += static_cast<float>(feature.ids[i]);
      feature.rows_out[2 * row + 1] += static_cast<float>(feature.ids[i]) + 0.1f;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<client::IdExplanation> ExplainId(std::string_view, std::int64_t id) override {
    client::IdExplanation explanation;
    explanation.node = "n1";
    explanation.bucket = 5;
    explanation.seen = static_cast<std::uint32_t>(id);
    explanation.evicted_reason = evicted_reason;
    explanation.evictions_known_since = evictions_known_since;
    return explanation;
  }
  absl::StatusOr<client::TableSurvey> SurveyTable(std::string_view) override {
    return client::TableSurvey{.slots = 200, .residents = 50, .age_sum = 400, .latest_step = 9};
  }
  absl::StatusOr<client::SweepReport> SweepTable(std::string_view,
                                                 const client::SweepOptions& options) override {
    return client::SweepReport{options.at_step.value_or(9), options.older_than_steps.value_or(7)};
  }
  absl::Status ReadEvictions(std::string_view, bool, const EvictionSink& sink) override {
    const std::vector<float> row = {0.5f, 1.0f};
    return sink({.id = -3,
                 .reason = "idle",
                 .step = 9,
                 .last_step = 2,
                 .weights = row,
                 .state = std::span(row).first(1),
                 .missed = 4});
  }
  std::vector<client::TableInfo> Tables() override {
    return {{.name = "clicks", .rows = 10, .dim = 2, .dtype = {}, .sharding = {}, .optimizer = {}}};
  }

  absl::StatusOr<std::vector<client::TableSyncReport>> Sync(const std::vector<std::string>& names,
                                                            const client::CallOptions&) override {
    std::vector<client::TableSyncReport> reports;
    for (const std::string& name : names) reports.push_back({name, 2, 0.5, 0.25});
    return reports;
  }
};

class ClientVerbsTest : public ::testing::Test {
 protected:
  // Returns the output since the last call.
  std::string Printed() {
    const std::string printed = out_.str();
    out_.str("");
    return printed;
  }

  std::ostringstream out_;
  const Output text_{false, out_};
  const Output json_{true, out_};
};

TEST_F(ClientVerbsTest, LookupShowsRows) {
  FakeClient client;
  LookupFlags flags;
  flags.table = "clicks";
  flags.ids = {0, 3};
  ASSERT_THAT(LookupVerb(client, flags, json_), IsOk());
  EXPECT_EQ(Json::parse(Printed()).dump(),
            R"([{"id":0,"columns":[0.0,0.1]},{"id":3,"columns":[3.0,3.1]}])");
  flags.columns_max = 1;
  ASSERT_THAT(LookupVerb(client, flags, text_), IsOk());
  EXPECT_EQ(Printed(),
            "id  columns\n"
            " 0   0 ... 1 more\n"
            " 3   3 ... 1 more\n");
  flags.pooling = "sum";
  ASSERT_THAT(LookupVerb(client, flags, json_), IsOk());
  EXPECT_EQ(Json::parse(Printed())[0]["columns"][0], 3.0);
}

TEST_F(ClientVerbsTest, TableSyncShowsHowFarGroupsWereApart) {
  FakeClient client;
  ASSERT_THAT(TableSyncVerb(client, {"clicks"}, text_), IsOk());
  EXPECT_EQ(Printed(),
            "table   replica groups  divergence max   rms\n"
            "clicks               2             0.5  0.25\n");
  ASSERT_THAT(TableSyncVerb(client, {"clicks"}, json_), IsOk());
  EXPECT_EQ(Json::parse(Printed())[0].dump(),
            R"({"table":"clicks","replica_groups":2,"divergence_max":0.5,"divergence_rms":0.25})");
}

TEST_F(ClientVerbsTest, LookupRefusesUnknownTablesAndPoolings) {
  FakeClient client;
  LookupFlags flags;
  flags.table = "click";
  EXPECT_EQ(ExitCodeOf(LookupVerb(client, flags, text_)), ExitCode::kNotFound);
  flags.pooling = "max";
  EXPECT_EQ(ExitCodeOf(LookupVerb(client, flags, text_)), ExitCode::kUsage);
}

TEST(IdExplainVerb, TellsWhereTheIdBelongsAndWhyItHasNoRow) {
  FakeClient client;
  std::ostringstream out;
  ASSERT_THAT(IdExplainVerb(client, "users", 3, {.json = true, .out = out}), IsOk());
  const Json view = Json::parse(out.str());
  EXPECT_EQ(view["node"], "n1");
  EXPECT_EQ(view["bucket"], 5);
  EXPECT_EQ(view["has_row"], false);
  EXPECT_EQ(view["seen"], 3);
  EXPECT_EQ(view["evicted"]["reason"], "replaced");
  std::ostringstream text;
  ASSERT_THAT(IdExplainVerb(client, "users", 3, {.json = false, .out = text}), IsOk());
  EXPECT_THAT(text.str(), HasSubstr("replaced at step 0"));
}

TEST(IdExplainVerb, SaysWhenEvictionsAreNotKnownAnyMore) {
  FakeClient client;
  client.evicted_reason = "";
  client.evictions_known_since = 40;
  std::ostringstream text;
  ASSERT_THAT(IdExplainVerb(client, "users", 3, {.json = false, .out = text}), IsOk());
  EXPECT_THAT(text.str(), HasSubstr("not since step 40; what was before is not known any more"));
}

TEST(ZchVerbs, SurveyTellsOccupancyAndAges) {
  FakeClient client;
  std::ostringstream out;
  ASSERT_THAT(TableSurveyVerb(client, "users", {.json = true, .out = out}), IsOk());
  const Json view = Json::parse(out.str());
  EXPECT_EQ(view["occupancy"], 0.25);
  EXPECT_EQ(view["mean_age_steps"], 8.0);
  EXPECT_EQ(view["latest_step"], 9);
}

TEST(ZchVerbs, SweepTellsWhatItTook) {
  FakeClient client;
  std::ostringstream out;
  ASSERT_THAT(TableSweepVerb(client, "users", {.older_than_steps = 5}, {.json = false, .out = out}),
              IsOk());
  EXPECT_EQ(out.str(), "swept users as of step 9: 5 ids lost their rows\n");
}

TEST(ZchVerbs, EvictionsAreALineEach) {
  FakeClient client;
  std::ostringstream text, json;
  ASSERT_THAT(TableEvictionsVerb(client, "users", false, {.json = false, .out = text}), IsOk());
  EXPECT_EQ(text.str(), "missed 4 evictions\nid -3 idle at step 9, last touched at step 2\n");
  ASSERT_THAT(TableEvictionsVerb(client, "users", false, {.json = true, .out = json}), IsOk());
  EXPECT_EQ(json.str(),
            "{\"missed\":4}\n{\"id\":-3,\"reason\":\"idle\",\"step\":9,\"last_step\":2,"
            "\"weights\":[0.5,1.0],\"state\":[0.5]}\n");
}

}  // namespace
}  // namespace embla::cli
