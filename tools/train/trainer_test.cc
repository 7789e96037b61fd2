#include "tools/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <sstream>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "tools/train/generator.h"
#include "tools/train/testing/fake_service.h"

namespace embla::train {
namespace {

using ::embla::testing::IsOk;
using ::testing::ElementsAre;
using testing::FakeAdmin;
using testing::FakeClient;
using testing::FakeService;
using ::testing::HasSubstr;

// Two hundred generated examples, their tables, and a trainer.
class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    table_options_.learning_rate = 0.05;
    table_options_.initial_accumulator = 0.0;
    table_options_.init_deviation = 0.01;  // Equal scores would make gradients that cancel.
    GeneratorOptions generator;
    generator.examples = kExamples;
    generator.rows_per_column = 20;
    Generator source(generator);
    EXPECT_THAT(source.Read(kExamples, examples_), IsOk());
    layout_ = LayoutOf(ModelKind::kFm, "m", source.columns(), 4);
    FakeAdmin admin(service_);
    std::ostringstream out;
    EXPECT_THAT(EnsureTables(layout_, table_options_, admin, client_, out), IsOk());
    order_.resize(kExamples);
    std::iota(order_.begin(), order_.end(), 0u);
    options_.batch = 16;
    options_.first_pause = absl::ZeroDuration();
  }

  absl::Status Run() {
    Trainer trainer(client_, layout_, options_, stop_);
    const absl::Status status =
        trainer.Run(examples_, order_, [this](std::size_t examples, double loss) {
          seen_ += examples;
          loss_ += loss;
        });
    updates_unknown_ = trainer.updates_unknown();
    return status;
  }

  static constexpr std::size_t kExamples = 200;
  static constexpr std::int64_t kBatches = 13;
  FakeService service_;
  FakeClient client_{service_};
  TableOptions table_options_;
  Examples examples_;
  ModelLayout layout_;
  std::vector<std::uint32_t> order_;
  TrainerOptions options_;
  std::atomic<bool> stop_ = false;
  std::size_t seen_ = 0;
  double loss_ = 0.0;
  std::uint64_t updates_unknown_ = 0;
};

TEST_F(TrainerTest, RunSendsOneLookupAndOneUpdatePerBatch) {
  ASSERT_THAT(Run(), IsOk());
  EXPECT_EQ(seen_, kExamples);
  EXPECT_EQ(service_.lookups(), kBatches);
  EXPECT_EQ(service_.updates(), kBatches);
}

TEST_F(TrainerTest, RunLowersTheLoss) {
  options_.synchronous = true;
  ASSERT_THAT(Run(), IsOk());
  const double first = std::exchange(loss_, 0.0);
  for (int epoch = 0; epoch < 20; ++epoch) {
    loss_ = 0.0;
    ASSERT_THAT(Run(), IsOk());
  }
  EXPECT_LT(loss_, 0.8 * first);
}

// One big batch: the single step of the fake's Adagrad is known in closed form.
TEST_F(TrainerTest, RunSendsTheSumOfTheGradientsOfABatch) {
  options_.batch = kExamples;
  ASSERT_THAT(Run(), IsOk());
  const std::vector<float> sum_rows = service_.RowsOf("m_linear");
  // The first step of Adagrad is lr * sign of the gradient, whatever its scale.
  for (const float weight : sum_rows) {
    EXPECT_TRUE(weight == 0.0f || std::abs(std::abs(weight) - 0.05f) < 1e-4f) << weight;
  }
}

TEST_F(TrainerTest, RunAsksForEveryRowOfABatchOnce) {
  options_.batch = kExamples;
  ASSERT_THAT(Run(), IsOk());
  EXPECT_FALSE(service_.saw_id_twice());
}

TEST_F(TrainerTest, RunRepeatsALookupWhileANodeIsAway) {
  service_.FailLookups(3, absl::UnavailableError("node n1 is away"));
  ASSERT_THAT(Run(), IsOk());
  EXPECT_EQ(service_.lookups(), kBatches + 3);
  EXPECT_EQ(service_.updates(), kBatches);
  EXPECT_EQ(seen_, kExamples);
}

TEST_F(TrainerTest, RunGivesUpAtOnceWithoutPatience) {
  options_.patience = absl::ZeroDuration();
  service_.FailLookups(1, absl::UnavailableError("node n1 is away"));
  const absl::Status status = Run();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(Message(status), HasSubstr("node n1 is away"));
}

TEST_F(TrainerTest, RunCountsUpdatesOfUnknownOutcome) {
  service_.FailUpdates(2, absl::DeadlineExceededError("no answer"));
  ASSERT_THAT(Run(), IsOk());
  EXPECT_EQ(updates_unknown_, 2u);
  EXPECT_EQ(service_.updates(), kBatches);
}

TEST_F(TrainerTest, RunPassesErrorsOnThatTimeDoesNotHeal) {
  service_.FailUpdates(1, absl::InvalidArgumentError("NaN gradient"));
  EXPECT_TRUE(absl::IsInvalidArgument(Run()));
  service_.FailLookups(1, absl::NotFoundError("table m_linear"));
  EXPECT_TRUE(absl::IsNotFound(Run()));
}

TEST_F(TrainerTest, RunStopsWithAClearMessageWhenTheLossIsNotFinite) {
  options_.prior = std::numeric_limits<double>::quiet_NaN();
  const absl::Status status = Run();
  EXPECT_TRUE(absl::IsAborted(status));
  EXPECT_THAT(Message(status), HasSubstr("Lower --lr"));
  EXPECT_EQ(service_.updates(), 0);
}

TEST_F(TrainerTest, RunEndsEarlyWhenStopped) {
  stop_ = true;
  ASSERT_THAT(Run(), IsOk());
  EXPECT_EQ(service_.updates(), 0);
}

TEST_F(TrainerTest, PredictChangesNothingAndEqualsScoresByHand) {
  ASSERT_THAT(Run(), IsOk());
  const std::vector<float> linear = service_.RowsOf("m_linear");
  const std::vector<float> factors = service_.RowsOf("m_factors");
  const std::int64_t updates = service_.updates();
  std::vector<float> scores(kExamples);
  Trainer trainer(client_, layout_, options_, stop_);
  ASSERT_THAT(trainer.Predict(examples_, order_, scores), IsOk());
  EXPECT_EQ(service_.updates(), updates);
  for (std::size_t e = 0; e < kExamples; ++e) {
    double expected = 0.0;
    for (std::size_t c = 0; c < examples_.columns; ++c) {
      const std::int64_t row = layout_.base[c] + examples_.RowsOf(e)[c];
      expected += linear[row];
      for (std::size_t d = c + 1; d < examples_.columns; ++d) {
        const std::int64_t other = layout_.base[d] + examples_.RowsOf(e)[d];
        for (int j = 0; j < 4; ++j) expected += factors[row * 4 + j] * factors[other * 4 + j];
      }
    }
    EXPECT_NEAR(scores[e], expected, 1e-5);
  }
}

TEST(LayoutOf, PutsAllColumnsOfAFactorizationMachineIntoOnePairOfTables) {
  const std::vector<Column> columns = {{"a", 10, ""}, {"b", 20, ""}, {"c", 5, ""}};
  const ModelLayout layout = LayoutOf(ModelKind::kFm, "ads", columns, 8);
  ASSERT_EQ(layout.pairs.size(), 1u);
  EXPECT_EQ(layout.pairs[0].linear, "ads_linear");
  EXPECT_EQ(layout.pairs[0].factors, "ads_factors");
  EXPECT_EQ(layout.pairs[0].rows, 35);
  EXPECT_THAT(layout.base, ElementsAre(0, 10, 30));
}

TEST(LayoutOf, GivesUsersAndItemsTablesOfTheirOwn) {
  const std::vector<Column> columns = {{"user", 10, ""}, {"item no.", 20, ""}};
  const ModelLayout layout = LayoutOf(ModelKind::kMf, "ml", columns, 8);
  ASSERT_EQ(layout.pairs.size(), 2u);
  EXPECT_EQ(layout.pairs[0].linear, "ml_user_bias");
  EXPECT_EQ(layout.pairs[1].factors, "ml_item_no._factors");
  EXPECT_EQ(layout.pairs[1].rows, 20);
  EXPECT_THAT(layout.base, ElementsAre(0, 0));
}

TEST(EnsureTables, UsesATableThatExistsAndSaysWhatDiffers) {
  FakeService service;
  FakeAdmin admin(service);
  FakeClient client(service);
  std::ostringstream out;
  const std::vector<Column> columns = {{"a", 10, ""}};
  TableOptions options;
  ASSERT_THAT(EnsureTables(LayoutOf(ModelKind::kFm, "m", columns, 8), options, admin, client, out),
              IsOk());
  EXPECT_THAT(out.str(), HasSubstr("created table m_factors: 10 rows x 8 fp32, row_wise"));

  ASSERT_THAT(EnsureTables(LayoutOf(ModelKind::kFm, "m", columns, 8), options, admin, client, out),
              IsOk());
  EXPECT_THAT(out.str(), HasSubstr("uses table m_factors"));

  options.optimizer = "adam";
  const absl::Status status = EnsureTables(LayoutOf(ModelKind::kFm, "m", {{{"a", 11, ""}}}, 8),
                                           options, admin, client, out);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(Message(status), HasSubstr("rows 10 instead of 11"));
  EXPECT_THAT(Message(status), HasSubstr("optimizer rowwise_adagrad instead of adam"));
}

}  // namespace
}  // namespace embla::train
