// Plans survive being written and read; what was read is checked, and bytes that are no plan are
// refused.
#include "core/planner/io/plan_json.h"

#include <cstdio>
#include <random>
#include <string>
#include <utility>

#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "core/planner/checker/checker.h"
#include "core/planner/io/stored_plan.h"
#include "core/planner/io/topology_json.h"
#include "core/planner/problem/machine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::planner {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;

class PlanJsonTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Problem problem;
    problem.topology = TopologyFromWord("2x4").value();
    problem.reservation.fraction = 0;
    for (int t = 0; t < 30; ++t) {
      Table table;
      table.name = "t" + std::to_string(t);
      table.rows = 1'000 + 1'000'000 * (t % 7);
      table.dim = 64u << (t % 3);
      table.lookups_per_sample = 1 + t;
      if (t % 5 == 0) table.rules.types = {ShardingType::kTableRowWise};
      if (t % 5 == 1) table.rules.types = {ShardingType::kTableWise};
      problem.tables.push_back(table);
    }
    absl::StatusOr<Planned> planned = Solve(std::move(problem));
    ASSERT_THAT(planned, IsOk());
    planned_ = *std::move(planned);
    absl::StatusOr<Explanation> explanation = Explain(planned_.problem, planned_.solution);
    ASSERT_THAT(explanation, IsOk());
    json_ = PlanToJson(planned_, *explanation, 1.5);
  }

  Planned planned_;
  Document json_;
};

TEST_F(PlanJsonTest, HasWhatScriptsRead) {
  for (const char* field : {"max_load_ms", "lower_bound_ms", "gap", "solve_ms", "plan_hash",
                            "devices", "hosts", "tables", "certificate", "inputs"}) {
    EXPECT_TRUE(json_.contains(field)) << field;
  }
  EXPECT_EQ(json_["solve_ms"], 1.5);
  EXPECT_EQ(json_["devices"].size(), 8u);
  EXPECT_EQ(json_["tables"].size(), 30u);
  EXPECT_EQ(json_["tables"][0]["reason"].is_string(), true);
}

TEST_F(PlanJsonTest, RoundTripIsExact) {
  const absl::StatusOr<StoredPlan> stored = PlanFromJson(json_.dump());
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(stored->inputs, DigestOf(planned_.problem));
  EXPECT_EQ(stored->inputs, DigestOf(stored->problem));
  const absl::StatusOr<Solution> bound = BindPlan(*stored, planned_.problem);
  ASSERT_THAT(bound, IsOk());
  EXPECT_EQ(bound->choices, planned_.solution.choices);
  EXPECT_EQ(bound->certificate, planned_.solution.certificate);
  EXPECT_EQ(bound->max_load, planned_.solution.max_load);
  EXPECT_EQ(PlanHash(planned_.problem, *bound), stored->plan_hash);
  EXPECT_THAT(Check(planned_.problem, *bound), IsOk());
}

TEST_F(PlanJsonTest, OtherMachinesOrTablesAreNamed) {
  const absl::StatusOr<StoredPlan> stored = PlanFromJson(json_.dump());
  ASSERT_THAT(stored, IsOk());
  Problem other = planned_.problem;
  other.topology.hosts.pop_back();
  EXPECT_THAT(Message(BindPlan(*stored, other).status()), HasSubstr("h0001:0 and none"));
  other = planned_.problem;
  other.tables[3].name = "zebra";
  other = Canonical(std::move(other));
  EXPECT_THAT(Message(BindPlan(*stored, other).status()), HasSubstr("tables"));
}

TEST_F(PlanJsonTest, RefusesWhatIsMissing) {
  for (const char* field : {"format", "plan_hash", "devices", "tables", "certificate"}) {
    Document without = json_;
    without.erase(field);
    const auto stored = PlanFromJson(without.dump());
    EXPECT_EQ(stored.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(stored.status()), HasSubstr(field));
  }
  Document tampered = json_;
  tampered["tables"][2]["cut"]["width"] = -4;
  EXPECT_THAT(Message(PlanFromJson(tampered.dump()).status()), HasSubstr("tables[2]"));
  tampered = json_;
  tampered["certificate"]["price"] = {1};
  EXPECT_THAT(Message(PlanFromJson(tampered.dump()).status()), HasSubstr("price"));
}

// No change of bytes crashes the reader, the binding or the checker. A plan that still passes says
// nothing better than the true one.
TEST_F(PlanJsonTest, MutationsNeverCrashNorImproveThePlan) {
  std::mt19937 random(embla::testing::TestSeed());
  const std::string text = json_.dump();
  constexpr std::string_view kAlphabet = "{}[]\",:0123456789.eE-+truefalsnhx\xff";
  int accepted = 0;
  for (int round = 0; round < 3'000; ++round) {
    std::string mutant = text;
    const std::size_t at = random() % mutant.size();
    if (random() % 3 == 0) {
      mutant.erase(at, 1 + random() % 12);
    } else {
      mutant[at] = kAlphabet[random() % kAlphabet.size()];
    }
    const absl::StatusOr<StoredPlan> stored = PlanFromJson(mutant);
    if (!stored.ok()) {
      ASSERT_EQ(stored.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    const absl::StatusOr<Solution> bound = BindPlan(*stored, planned_.problem);
    if (!bound.ok()) continue;
    const absl::StatusOr<CheckReport> report = Check(planned_.problem, *bound);
    if (!report.ok()) continue;
    ++accepted;
    ASSERT_LE(report->proven_bound, planned_.solution.max_load);
  }
  EXPECT_GT(accepted, 0);  // Most of the text is for people.
}

}  // namespace
}  // namespace embla::planner
