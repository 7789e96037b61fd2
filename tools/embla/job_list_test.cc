// The list of jobs, as text within 100 columns and as JSON.
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/include/embla/testing/unimplemented_client.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/embla/job_cmd.h"
#include "tools/embla/plan_view.h"
#include "tools/embla/text_table.h"

namespace embla::cli {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;

TEST(JobVerbs, AListHasOneLineOfFiguresPerJobAndSaysWhomEachWaitsFor) {
  client::testing::FakeAdmin admin;
  admin.On<v1::ListJobsRequest, v1::ListJobsReply>([](const auto&, auto& reply) {
    v1::Job& queued = *reply.add_jobs();
    queued.set_id(1235);
    queued.set_state(v1::JOB_STATE_QUEUED);
    queued.set_description("drain node n2");
    queued.set_waits_for("waits for job 1234");
    v1::Job& running = *reply.add_jobs();
    running.set_id(1234);
    running.set_state(v1::JOB_STATE_CANCELLING);
    running.set_description("reshard table user_history_category_of_the_last_thirty_days to 256");
    running.set_units_total(131072);
    running.set_units_moved(131070);
    running.set_bytes_moved(std::uint64_t{1023} << 30);
    running.set_pause_p99_ms(1234.5);
    running.set_waits_for("waits for node n2 at 10.0.0.2:7072, which is down");
    running.set_awaited_node("n2");
    return absl::OkStatus();
  });
  std::ostringstream text;
  ASSERT_THAT(JobListVerb(admin, {.out = text}), IsOk());
  const std::vector<std::string> lines = absl::StrSplit(absl::StripSuffix(text.str(), "\n"), '\n');
  ASSERT_EQ(lines.size(), 6u) << text.str();
  for (const std::string& line : lines) EXPECT_LE(line.size(), TextTable::kColumnsMax) << line;
  EXPECT_EQ(lines[1], "1235  queued                0/0       0 B     0.0 ms  drain node n2");
  EXPECT_EQ(lines[2], "    waits for job 1234");
  EXPECT_EQ(lines[3],
            "1234  cancelling  131070/131072  1023 GiB  1234.5 ms  "
            "reshard table user_history_category_of_t..");
  EXPECT_THAT(text.str(), HasSubstr("waits for node n2 at\n    10.0.0.2:7072, which is down\n"));
  std::ostringstream json;
  ASSERT_THAT(JobListVerb(admin, {.json = true, .out = json}), IsOk());
  const Json document = Json::parse(json.str());
  EXPECT_EQ(document[1]["awaited_node"], "n2");
  EXPECT_EQ(document[1]["waits_for"], "waits for node n2 at 10.0.0.2:7072, which is down");
  EXPECT_EQ(document[1]["error"], "");
}

}  // namespace
}  // namespace embla::cli
