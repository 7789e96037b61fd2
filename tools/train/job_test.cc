#include "tools/train/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "tools/train/testing/fake_service.h"
#include "tools/train/testing/temp_file.h"

namespace embla::train {
namespace {

using ::embla::testing::IsOk;
using ::testing::ElementsAre;
using testing::FakeAdmin;
using testing::FakeClient;
using testing::FakeService;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class JobTest : public ::testing::Test {
 protected:
  JobTest() {
    input_.generate = 2000;
    run_.epochs = 2;
    run_.trainer.batch = 64;
    run_.validation_fraction = 0.0;
    run_.trainer.first_pause = absl::ZeroDuration();
  }

  absl::StatusOr<Report> Run() {
    auto inputs = OpenInputs(input_, out_);
    if (!inputs.ok()) return inputs.status();
    FakeAdmin admin(service_);
    Progress progress(out_, Progress::Style::kLines, clock_);
    Environment environment{admin, {}, out_, progress, clock_};
    std::vector<std::unique_ptr<FakeClient>> clients;
    for (int i = 0; i < run_.trainers; ++i) {
      clients.push_back(std::make_unique<FakeClient>(service_));
      environment.clients.push_back(clients.back().get());
    }
    return RunJob(run_, *inputs, environment);
  }

  FakeService service_;
  ManualClock clock_{absl::UnixEpoch()};
  std::ostringstream out_;
  InputOptions input_;
  RunOptions run_;
};

TEST_F(JobTest, TrainsOnEveryExampleInEveryEpochWithAnyNumberOfTrainers) {
  for (const int trainers : {1, 2, 3, 7}) {
    run_.trainers = trainers;
    const auto report = Run();
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(report->examples, 4000u);
    EXPECT_EQ(report->test_examples, 400u);
  }
}

TEST_F(JobTest, ProcessesOfOneWorldShareTheExamples) {
  run_.world = 3;
  std::uint64_t examples = 0;
  for (run_.rank = 0; run_.rank < run_.world; ++run_.rank) {
    const auto report = Run();
    ASSERT_THAT(report, IsOk());
    examples += report->examples;
  }
  EXPECT_EQ(examples, 4000u);
}

// Bit for bit: one trainer, synchronous, same seed.
TEST_F(JobTest, SynchronousRunsOfOneTrainerRepeatExactly) {
  run_.trainer.synchronous = true;
  const auto first = Run();
  const std::vector<float> factors = service_.RowsOf("model_factors");
  run_.prefix = "again";
  const auto second = Run();
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(service_.RowsOf("again_factors"), factors);
  EXPECT_EQ(first->quality.auc, second->quality.auc);
}

TEST_F(JobTest, ReadsInputsThatDoNotFitAnewInEveryEpoch) {
  run_.chunk_examples = 300;
  const auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->examples, 4000u);
  EXPECT_EQ(report->test_examples, 400u);
}

TEST_F(JobTest, AnInputOfExactlyOneChunkIsReadWhole) {
  run_.chunk_examples = 2000;
  const auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->examples, 4000u);
}

TEST_F(JobTest, ReplicaGroupsAreAskedForAndAveragedAfterEveryEpoch) {
  run_.tables.replica_groups = 2;
  run_.tables.sync_every_steps = 10;
  ASSERT_THAT(Run(), IsOk());
  EXPECT_THAT(service_.synced(),
              ElementsAre("model_linear", "model_factors", "model_linear", "model_factors"));
  EXPECT_EQ(service_.Tables().front().replica_groups, 2u);
  run_.tables.replica_groups = 3;
  const auto other = Run();
  EXPECT_TRUE(absl::IsFailedPrecondition(other.status()));
  EXPECT_THAT(Message(other.status()), HasSubstr("replica groups 2 instead of 3"));
}

TEST_F(JobTest, TestsWithoutTrainingWhenThereAreNoEpochs) {
  ASSERT_THAT(Run(), IsOk());
  const std::int64_t updates = service_.updates();
  run_.epochs = 0;
  const auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(service_.updates(), updates);
  EXPECT_EQ(report->examples, 0u);
  EXPECT_TRUE(report->quality.auc.has_value());
}

TEST_F(JobTest, OneFailingTrainerStopsTheOthersAndNamesTheError) {
  run_.trainers = 3;
  service_.FailLookups(1, absl::NotFoundError("table model_linear was dropped"));
  const auto report = Run();
  EXPECT_TRUE(absl::IsNotFound(report.status()));
}

TEST_F(JobTest, SaysThatAnInputHasNoExamples) {
  const testing::TempFile file("label,a\n");
  input_.generate = 0;
  input_.train_path = file.path();
  const auto report = Run();
  EXPECT_TRUE(absl::IsInvalidArgument(report.status()));
  EXPECT_THAT(Message(report.status()), HasSubstr("no training examples"));
}

TEST_F(JobTest, PrintsOneLineAtTheEndOfEveryEpoch) {
  run_.epochs = 3;
  ASSERT_THAT(Run(), IsOk());
  EXPECT_THAT(out_.str(), HasSubstr("epoch 1/3 100 %  2000 examples"));
  EXPECT_THAT(out_.str(), HasSubstr("epoch 3/3 100 %  2000 examples"));
}

// The tables of a run that has passed its best epoch are those of a run that ended with it.
TEST_F(JobTest, StopsAfterTheBestEpochAndLeavesTheTablesAsItLeftThem) {
  run_.validation_fraction = 0.2;
  run_.trainer.synchronous = true;
  run_.tables.learning_rate = 0.5;  // Overfits soon.
  run_.epochs = 50;
  const auto report = Run();
  ASSERT_THAT(report, IsOk());
  ASSERT_GT(report->best_epoch, 0);
  EXPECT_EQ(report->epochs(), report->best_epoch + 2);
  EXPECT_NEAR(static_cast<double>(report->validation_examples), 400.0, 60.0);
  const std::vector<float> factors = service_.RowsOf("model_factors");

  run_.prefix = "shorter";
  run_.epochs = report->best_epoch;
  const auto shorter = Run();
  ASSERT_THAT(shorter, IsOk());
  EXPECT_EQ(service_.RowsOf("shorter_factors"), factors);
  EXPECT_EQ(shorter->quality.auc, report->quality.auc);
}

TEST_F(JobTest, JudgesEveryEpochByExamplesThatItDoesNotTrainOn) {
  run_.validation_fraction = 0.25;
  const auto report = Run();
  ASSERT_THAT(report, IsOk());
  ASSERT_EQ(report->epoch_reports.size(), 2u);
  EXPECT_EQ(report->examples, 2 * (2000 - report->validation_examples));
  for (const EpochReport& epoch : report->epoch_reports) {
    EXPECT_GT(epoch.train_loss, 0.0);
    EXPECT_TRUE(epoch.validation.auc && epoch.validation.logloss);
  }
  EXPECT_THAT(out_.str(), HasSubstr("epoch 2: train logloss 0."));
  EXPECT_THAT(out_.str(), HasSubstr(", validation logloss 0."));
}

TEST_F(JobTest, HoldsTheSameExamplesBackWhenAnInputIsReadInChunks) {
  run_.validation_fraction = 0.2;
  run_.trainer.synchronous = true;
  run_.epochs = 1;
  const auto whole = Run();
  run_.chunk_examples = 300;
  run_.epochs = 2;
  run_.prefix = "chunks";
  const auto chunks = Run();
  ASSERT_THAT(whole, IsOk());
  ASSERT_THAT(chunks, IsOk());
  EXPECT_EQ(chunks->validation_examples, whole->validation_examples);
  EXPECT_EQ(chunks->examples, 2 * whole->examples);
}

TEST_F(JobTest, KeepsTheLastEpochAndSaysSoWhenTheTablesCannotBeCopied) {
  run_.validation_fraction = 0.2;
  run_.tables.learning_rate = 0.5;
  run_.epochs = 50;
  run_.kept_bytes_max = 100;
  ASSERT_THAT(Run(), IsOk());
  EXPECT_THAT(out_.str(), HasSubstr("the tables are too large to be copied"));
  run_.kept_bytes_max = std::int64_t{1} << 30;
  run_.prefix = "away";
  service_.FailScans(50, absl::UnavailableError("node n1 is away"));
  ASSERT_THAT(Run(), IsOk());
  EXPECT_THAT(out_.str(), HasSubstr("no copy: node n1 is away"));
}

TEST_F(JobTest, SeveralProcessesTrainAllEpochs) {
  run_.validation_fraction = 0.2;
  run_.tables.learning_rate = 0.5;
  run_.world = 2;
  run_.epochs = 12;
  const auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->epochs(), 12);
  EXPECT_LT(report->best_epoch, 12);
}

TEST_F(JobTest, TakesALearningRateThatSuitsTheOptimizer) {
  const auto rate_of = [this](const char* prefix) {
    EXPECT_THAT(Run(), IsOk());
    return service_.LearningRateOf(absl::StrCat(prefix, "_linear"));
  };
  EXPECT_EQ(rate_of("model"), 0.1);
  run_.prefix = "sgd";
  run_.tables.optimizer = "sgd";
  EXPECT_EQ(rate_of("sgd"), 0.005);
  run_.prefix = "given";
  run_.tables.learning_rate = 0.02;
  EXPECT_EQ(rate_of("given"), 0.02);
}

TEST(ReportToJson, HoldsTheFinalFigures) {
  Report report;
  report.epoch_reports = {{0.6, {0.7, 0.55, {}}}, {0.5, {}}};
  report.best_epoch = 1;
  report.quality.auc = 0.75;
  report.examples = 100;
  report.seconds = 4.0;
  const auto json = nlohmann::json::parse(ReportToJson(report));
  EXPECT_EQ(json.at("auc"), 0.75);
  EXPECT_TRUE(json.at("rmse").is_null());
  EXPECT_TRUE(json.at("planted_auc").is_null());
  EXPECT_EQ(json.at("examples"), 100);
  EXPECT_EQ(json.at("examples_per_second"), 25.0);
  EXPECT_EQ(json.at("seconds"), 4.0);
  EXPECT_EQ(json.at("epochs"), 2);
  EXPECT_EQ(json.at("best_epoch"), 1);
  EXPECT_EQ(json.at("train_loss"), 0.5);
  EXPECT_EQ(json.at("epoch_figures").at(0).at("validation_auc"), 0.7);
  EXPECT_TRUE(json.at("epoch_figures").at(1).at("validation_logloss").is_null());
}

TEST(WriteReport, NamesAFileThatCannotBeWritten) {
  const absl::Status status = WriteReport(Report(), "/nowhere/report.json");
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(Message(status), HasSubstr("/nowhere/report.json"));
}

TEST(ProgressDraw, ShowsABarOnTerminals) {
  ManualClock clock(absl::UnixEpoch());
  std::ostringstream out;
  Progress progress(out, Progress::Style::kBar, clock);
  progress.BeginEpoch(1, 2, 1000);
  progress.Draw();
  EXPECT_EQ(out.str(), "");
  clock.Advance(absl::Seconds(2));
  progress.Add(500, 250.0);
  progress.Draw();
  EXPECT_THAT(out.str(), StartsWith("\repoch 1/2 [############............]  50 %  500 examples"));
  EXPECT_THAT(out.str(), HasSubstr("250 examples/s  loss 0.5000"));
}

TEST(ProgressDraw, PrintsFewLinesElsewhere) {
  ManualClock clock(absl::UnixEpoch());
  std::ostringstream out;
  Progress progress(out, Progress::Style::kLines, clock);
  progress.BeginEpoch(1, 1, 1000);
  for (int i = 0; i < 1000; ++i) {
    clock.Advance(absl::Milliseconds(1));
    progress.Add(1, 0.5);
    progress.Draw();
  }
  progress.EndEpoch();
  const std::string text = out.str();
  EXPECT_EQ(std::ranges::count(text, '\n'), 5);
}

TEST(RunOptionsValidate, NamesTheOption) {
  RunOptions options;
  EXPECT_THAT(options.Validate(), IsOk());
  options.rank = 1;
  EXPECT_THAT(Message(options.Validate()), HasSubstr("--rank is 1"));
  options.rank = 0;
  options.trainer.batch = 0;
  EXPECT_THAT(Message(options.Validate()), HasSubstr("--batch is 0"));
  options.validation_fraction = 1.0;
  EXPECT_THAT(Message(options.Validate()), HasSubstr("--validation-fraction is 1"));
}

}  // namespace
}  // namespace embla::train
