// The promise of the example trainer: on the census data it ranks as well as a plain program.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>

#include "core/base/clock.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "tools/train/job.h"
#include "tools/train/testing/fake_service.h"

namespace embla::train {
namespace {

using ::embla::testing::IsOk;
using testing::FakeAdmin;
using testing::FakeClient;
using testing::FakeService;

std::string DataDir() {
  const char* dir = std::getenv("EMBLA_DATA_DIR");
  return dir != nullptr ? dir : "../shared/data";
}

absl::StatusOr<Report> Train(const RunOptions& run, const InputOptions& input) {
  auto inputs = OpenInputs(input, std::cout);
  if (!inputs.ok()) return inputs.status();
  FakeService service;
  FakeAdmin admin(service);
  std::vector<std::unique_ptr<FakeClient>> clients;
  Progress progress(std::cout, Progress::Style::kLines, Clock::Real());
  Environment environment{admin, {}, std::cout, progress, Clock::Real()};
  for (int i = 0; i < run.trainers; ++i) {
    clients.push_back(std::make_unique<FakeClient>(service));
    environment.clients.push_back(clients.back().get());
  }
  return RunJob(run, *inputs, environment);
}

TEST(EmblaTrain, RanksCensusRecordsAsWellAsAPlainProgram) {
  InputOptions input;
  input.train_path = DataDir() + "/adult_train.csv";
  input.test_path = DataDir() + "/adult_test.csv";
  if (!std::filesystem::exists(input.train_path)) {
    GTEST_SKIP() << input.train_path << " is absent; set EMBLA_DATA_DIR";
  }
  RunOptions run;
  run.trainers = 2;
  const auto report = Train(run, input);
  ASSERT_THAT(report, IsOk());
  PrintReport(*report, std::cout);
  EXPECT_GE(report->quality.auc.value_or(0.0), 0.912);
  EXPECT_EQ(report->examples, report->epochs() * (32561u - report->validation_examples));
  EXPECT_EQ(report->test_examples, 16281u);
  EXPECT_EQ(report->bad_rows, 0);
}

TEST(EmblaTrain, RanksCensusRecordsAsWellWithRawIdsAndZchTables) {
  InputOptions input;
  input.train_path = DataDir() + "/adult_train.csv";
  input.test_path = DataDir() + "/adult_test.csv";
  if (!std::filesystem::exists(input.train_path)) {
    GTEST_SKIP() << input.train_path << " is absent; set EMBLA_DATA_DIR";
  }
  input.rule.raw_ids = true;
  RunOptions run;
  run.trainers = 2;
  run.tables.zch_capacity = 10000;
  const auto report = Train(run, input);
  ASSERT_THAT(report, IsOk());
  PrintReport(*report, std::cout);
  EXPECT_GE(report->quality.auc.value_or(0.0), 0.912);
}

TEST(EmblaTrain, ComesCloseToThePlantedTruthOfGeneratedRatingsWithZchTables) {
  InputOptions input;
  input.generate = 200000;
  input.model = ModelKind::kMf;
  input.rule.raw_ids = true;
  RunOptions run;
  run.trainers = 2;
  run.tables.zch_capacity = 10000;
  const auto report = Train(run, input);
  ASSERT_THAT(report, IsOk());
  ASSERT_TRUE(report->planted.rmse.has_value());
  EXPECT_LE(report->quality.rmse.value_or(9.0), *report->planted.rmse * 1.02);
}

TEST(EmblaTrain, ComesCloseToThePlantedTruthOfGeneratedClicks) {
  InputOptions input;
  input.generate = 200000;
  RunOptions run;
  run.trainers = 2;
  const auto report = Train(run, input);
  ASSERT_THAT(report, IsOk());
  PrintReport(*report, std::cout);
  ASSERT_TRUE(report->planted.auc.has_value());
  EXPECT_GE(report->quality.auc.value_or(0.0), *report->planted.auc - 0.015);
  EXPECT_LE(report->quality.auc.value_or(1.0), *report->planted.auc + 0.005);
}

TEST(EmblaTrain, ComesCloseToThePlantedTruthOfGeneratedRatings) {
  InputOptions input;
  input.generate = 200000;
  input.model = ModelKind::kMf;
  RunOptions run;
  run.trainers = 2;
  const auto report = Train(run, input);
  ASSERT_THAT(report, IsOk());
  PrintReport(*report, std::cout);
  ASSERT_TRUE(report->planted.rmse.has_value());
  EXPECT_LE(report->quality.rmse.value_or(9.0), *report->planted.rmse * 1.02);
}

}  // namespace
}  // namespace embla::train
