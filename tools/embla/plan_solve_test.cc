// plan solve and plan check as verbs, without a process.
#include "tools/embla/plan_solve_cmd.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/embla/exit_code.h"
#include "tools/embla/plan_report.h"

namespace embla::cli {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;

class PlanSolveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "plan_solve_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
    std::string csv = "name,rows,dim,pooling\n";
    for (int t = 0; t < 40; ++t) {
      csv += "t" + std::to_string(t) + "," + std::to_string(1000 + 50'000 * (t % 9)) + "," +
             std::to_string(16 << (t % 4)) + "," + std::to_string(1 + t % 5) + "\n";
    }
    flags_.input.tables = Write("tables.csv", csv);
    flags_.input.topology = "2x4";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  static std::string Read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  absl::Status Solve(bool json = false) {
    out_.str("");
    return PlanSolveVerb(
        flags_, [this] { return seconds_ += 0.25; }, Output{json, out_});
  }
  absl::Status CheckPlan(const std::string& plan) {
    out_.str("");
    return PlanCheckVerb(plan, flags_.input, Output{false, out_});
  }

  std::string folder_;
  PlanSolveFlags flags_;
  std::ostringstream out_;
  double seconds_ = 0;
};

TEST_F(PlanSolveTest, TextSaysHowGoodAndWhy) {
  flags_.check = true;
  ASSERT_THAT(Solve(), IsOk());
  const std::string text = out_.str();
  EXPECT_THAT(text, HasSubstr("40 tables on 2 hosts, 8 devices"));
  EXPECT_THAT(text, HasSubstr("certificate checked"));
  EXPECT_THAT(text, HasSubstr("max / mean"));
  EXPECT_THAT(text, HasSubstr("longest on the hottest device"));
  EXPECT_THAT(text, HasSubstr("h0001:3"));
  EXPECT_THAT(text, HasSubstr("the 25 with the most work"));
}

TEST_F(PlanSolveTest, TextFitsIntoAHundredColumns) {
  std::string csv = "name,rows,dim,pooling\n";
  for (int t = 0; t < 12; ++t) {
    csv += "a_table_with_a_name_that_is_much_too_long_" + std::to_string(t) + "," +
           std::to_string(100'000'000 + 50'000'000 * t) + "," + std::to_string(16 << (t % 4)) +
           "," + std::to_string(1 + t % 5) + "\n";
  }
  flags_.input.tables = Write("long.csv", csv);
  flags_.input.topology = "2x8";
  flags_.input.device_memory = "80GiB";
  ASSERT_THAT(Solve(), IsOk());
  EXPECT_THAT(out_.str(), HasSubstr("a_table_with_a_name_th.."));
  EXPECT_THAT(out_.str(), HasSubstr("; next best "));
  std::istringstream lines(out_.str());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(MarginText, SaysWhatASignMeans) {
  EXPECT_EQ(MarginText(3.314), "which costs 3.31 ms more");
  EXPECT_EQ(MarginText(-0.0116), "which by itself would cost 0.0116 ms less");
}

TEST_F(PlanSolveTest, JsonHasTheTimeOfTheClock) {
  ASSERT_THAT(Solve(true), IsOk());
  const auto json = nlohmann::json::parse(out_.str());
  EXPECT_EQ(json["solve_ms"], 250.0);
  EXPECT_EQ(json["tables"].size(), 40u);
  EXPECT_EQ(json["devices"].size(), 8u);
}

TEST_F(PlanSolveTest, CheckAcceptsThePlanAndNamesAChangedInput) {
  ASSERT_THAT(Solve(true), IsOk());
  const std::string plan = Write("plan.json", out_.str());
  ASSERT_THAT(CheckPlan(plan), IsOk());
  EXPECT_THAT(out_.str(), HasSubstr("accepted"));

  flags_.input.topology = "2x8";
  const absl::Status status = CheckPlan(plan);
  EXPECT_THAT(Message(status), HasSubstr("topology changed"));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kRefused);
  flags_.input.topology = "2x4";
  flags_.input.batch = 100;
  EXPECT_THAT(Message(CheckPlan(plan)), HasSubstr("options changed"));
}

TEST_F(PlanSolveTest, CheckRefusesATamperedPlan) {
  ASSERT_THAT(Solve(true), IsOk());
  auto json = nlohmann::ordered_json::parse(out_.str());
  json["lower_bound_ticks"] = json["max_load_ticks"];
  const std::string plan = Write("plan.json", json.dump());
  EXPECT_THAT(Message(CheckPlan(plan)), HasSubstr("states a lower bound"));
}

TEST_F(PlanSolveTest, WritesAPicture) {
  flags_.svg = folder_ + "/plan.svg";
  ASSERT_THAT(Solve(), IsOk());
  EXPECT_THAT(Read(flags_.svg), HasSubstr("</svg>"));
  flags_.svg = folder_ + "/no/such/folder.svg";
  EXPECT_THAT(Message(Solve()), HasSubstr("cannot write"));
}

TEST_F(PlanSolveTest, CheckNeedsNoInputsAsThePlanHasThem) {
  ASSERT_THAT(Solve(true), IsOk());
  const std::string plan = Write("plan.json", out_.str());
  flags_.input = {};
  EXPECT_THAT(CheckPlan(plan), IsOk());
}

TEST_F(PlanSolveTest, StartsFromAPreviousPlan) {
  ASSERT_THAT(Solve(true), IsOk());
  flags_.prev = Write("plan.json", out_.str());
  flags_.check = true;
  ASSERT_THAT(Solve(), IsOk());
  EXPECT_THAT(out_.str(), HasSubstr("0 moves of 0 B"));
  flags_.input.topology = "3x4";
  ASSERT_THAT(Solve(), IsOk());
  EXPECT_THAT(out_.str(), HasSubstr("h0002:"));
  EXPECT_THAT(out_.str(), HasSubstr("no plan with these cuts moves less than"));
  ASSERT_THAT(Solve(true), IsOk());
  const auto json = nlohmann::json::parse(out_.str());
  std::int64_t bytes = 0;
  for (const auto& move : json["replan"]["moves"]) bytes += move["bytes"].get<std::int64_t>();
  EXPECT_EQ(bytes, json["replan"]["moved_bytes"]);
}

TEST_F(PlanSolveTest, APreviousPlanThatDoesNotHoldIsRefused) {
  ASSERT_THAT(Solve(true), IsOk());
  auto json = nlohmann::ordered_json::parse(out_.str());
  json["devices"][0]["load_ticks"] = 1;
  flags_.prev = Write("plan.json", json.dump());
  EXPECT_THAT(Message(Solve()), HasSubstr("plan.json: device h0000:0"));
}

TEST_F(PlanSolveTest, InfeasibleIsRefusedAndSaysWhy) {
  flags_.input.device_memory = "1MiB";
  flags_.input.constraints = Write("rules.json", R"({"*": {"kernels": ["device"]}})");
  const absl::Status status = Solve();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kRefused) << status;
  EXPECT_THAT(Message(status), HasSubstr("device"));
}

TEST_F(PlanSolveTest, YamlProblemWithEverything) {
  flags_.input = {};
  flags_.input.tables = Write("problem.yaml", R"(
topology: {hosts: [{name: n, count: 2, devices: 2, device_memory: 16GiB}]}
batch: 64
tables:
  - {name: a, rows: 1000000, dim: 64, pooling: 3}
  - {name: b, rows: 500, dim: 16}
constraints:
  a: {types: [row_wise]}
)");
  ASSERT_THAT(Solve(true), IsOk());
  const auto json = nlohmann::json::parse(out_.str());
  EXPECT_EQ(json["tables"][0]["type"], "row_wise");
}

TEST_F(PlanSolveTest, UsageErrorsNameFileAndField) {
  flags_.input.topology = "";
  EXPECT_EQ(ExitCodeOf(Solve()), ExitCode::kUsage);
  flags_.input.topology = "2x4";
  flags_.input.constraints = Write("rules.json", R"({"t1": {"type": ["row_wise"]}})");
  const absl::Status status = Solve();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  EXPECT_THAT(Message(status), HasSubstr("rules.json"));
  EXPECT_THAT(Message(status), HasSubstr("unknown field \"type\""));
  flags_.input.constraints = folder_ + "/none.json";
  EXPECT_EQ(ExitCodeOf(Solve()), ExitCode::kNotFound);
}

TEST(TextBar, IsAsWideAsAskedAndShowsALittle) {
  EXPECT_EQ(TextBar(0.5, 4), "[##--]");
  EXPECT_EQ(TextBar(0, 4), "[----]");
  EXPECT_EQ(TextBar(0.01, 4), "[#---]");
  EXPECT_EQ(TextBar(2, 4), "[####]");
}

}  // namespace
}  // namespace embla::cli
