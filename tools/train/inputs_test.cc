#include "tools/train/inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>
#include <string>

#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "tools/train/random.h"
#include "tools/train/testing/temp_file.h"

namespace embla::train {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempFile;

// A census in small: text, few numbers, many numbers, missing cells.
std::string CensusText(int rows, std::uint64_t seed) {
  Random random(seed);
  std::string text = "label,city,grade,income\n";
  for (int i = 0; i < rows; ++i) {
    text += random.Below(2) == 0 ? "0," : "1,";
    text += "city" + std::to_string(random.Below(5)) + ",";
    text += random.Below(10) == 0 ? "," : std::to_string(random.Below(12)) + ",";
    text += std::to_string(random.Below(1000000)) + "\n";
  }
  return text;
}

Examples ReadAll(ExampleSource& source) {
  Examples examples;
  EXPECT_THAT(source.Restart(), IsOk());
  EXPECT_THAT(source.Read(1u << 20, examples), IsOk());
  return examples;
}

TEST(OpenInputs, PrintsTheFormatAndTheRuleOfEveryColumn) {
  const TempFile train(CensusText(1000, 1));
  const TempFile test(CensusText(100, 2));
  InputOptions options;
  options.train_path = train.path();
  options.test_path = test.path();
  std::ostringstream out;
  const auto inputs = OpenInputs(options, out);
  ASSERT_THAT(inputs, IsOk());
  EXPECT_THAT(out.str(), HasSubstr("format csv, 3 columns"));
  EXPECT_THAT(out.str(), HasSubstr("city: 5 values as they are (7 rows)"));
  EXPECT_THAT(out.str(), HasSubstr("grade: 12 values as they are (14 rows)"));
  EXPECT_THAT(out.str(), HasSubstr("income: numbers in"));
  EXPECT_EQ(ReadAll(*inputs->train).size(), 1000u);
  EXPECT_EQ(ReadAll(*inputs->test).size(), 100u);
  EXPECT_EQ(inputs->model, ModelKind::kFm);
  EXPECT_EQ(inputs->loss, Loss::kLogistic);
}

// A click log of 1,600 lines, as the tutorials of click models use it.
std::string CriteoText(int rows) {
  Random random(7);
  std::string text;
  for (int i = 0; i < rows; ++i) {
    text += random.Below(4) == 0 ? "1" : "0";
    for (int c = 0; c < 13; ++c) text += "\t" + std::to_string(random.Below(1000));
    for (int c = 0; c < 26; ++c) {
      char cell[16];
      std::snprintf(cell, sizeof cell, "\t%08x", static_cast<unsigned>(random.Below(500) * 7919));
      text += cell;
    }
    text += "\n";
  }
  return text;
}

TEST(OpenInputs, GivesAClickLogAsManyRowsAsItHasValues) {
  const TempFile train(CriteoText(1600));
  InputOptions options;
  options.train_path = train.path();
  std::ostringstream out;
  const auto inputs = OpenInputs(options, out);
  ASSERT_THAT(inputs, IsOk());
  EXPECT_THAT(out.str(), HasSubstr("format criteo, 39 columns"));
  std::uint64_t rows = 0;
  for (const Column& column : inputs->train->columns()) rows += column.rows;
  EXPECT_LT(rows, 26u * 502u + 13u * 60u);
  EXPECT_GT(rows, 26u * 400u);
}

// Columns that only identify records: text, and shuffled whole numbers.
std::string TextWithIds(int rows) {
  std::string text = "order,label,number,city,price,day\n";
  for (int i = 0; i < rows; ++i) {
    text += "o" + std::to_string(i * 7) + "," + std::to_string(i % 2) + ",";
    text += std::to_string(1000 + (i * 37) % rows) + ",city" + std::to_string(i % 5) + ",";
    text += std::to_string(i) + ".25," + std::to_string(i % 90) + "\n";
  }
  return text;
}

TEST(OpenInputs, LeavesColumnsOutThatOnlyIdentifyRecords) {
  const TempFile train(TextWithIds(500));
  // The test file may lack those columns.
  const TempFile test("city,label,price,day\ncity1,1,2.5,3\n");
  InputOptions options;
  options.train_path = train.path();
  options.test_path = test.path();
  for (const bool raw_ids : {false, true}) {
    options.rule.raw_ids = raw_ids;
    std::ostringstream out;
    const auto inputs = OpenInputs(options, out);
    ASSERT_THAT(inputs, IsOk());
    EXPECT_THAT(out.str(), HasSubstr("order: left out, as every record has another value"));
    EXPECT_THAT(out.str(), HasSubstr("number: left out"));
    ASSERT_EQ(inputs->train->columns().size(), 3u);
    EXPECT_EQ(inputs->train->columns()[0].name, "city");
    EXPECT_EQ(ReadAll(*inputs->test).size(), 1u);
  }
}

TEST(OpenInputs, KeepsColumnsOfIdsThatAreToBeNames) {
  const TempFile train(TextWithIds(500));
  InputOptions options;
  options.train_path = train.path();
  options.keep_text = {"order", "number"};
  std::ostringstream out;
  const auto inputs = OpenInputs(options, out);
  ASSERT_THAT(inputs, IsOk());
  EXPECT_EQ(inputs->train->columns().size(), 5u);
  EXPECT_THAT(out.str(), HasSubstr("order: 4"));  // About 450 of them, the others are held out.
}

TEST(OpenInputs, SaysThatThereIsNothingToLearnFromIdsAlone) {
  std::string text = "label,id\n";
  for (int i = 0; i < 300; ++i) text += std::to_string(i % 2) + "," + std::to_string(i) + "\n";
  const TempFile train(text);
  InputOptions options;
  options.train_path = train.path();
  std::ostringstream out;
  const auto inputs = OpenInputs(options, out);
  EXPECT_TRUE(absl::IsInvalidArgument(inputs.status()));
  EXPECT_THAT(Message(inputs.status()), HasSubstr("nothing to learn from"));
}

TEST(OpenInputs, KeepsRowsOfEveryColumnInRange) {
  const TempFile train(CensusText(500, 1));
  const TempFile test(CensusText(500, 2) + "1,unseen town,99,-7\n0,,,\n1,a,b,c\n");
  InputOptions options;
  options.train_path = train.path();
  options.test_path = test.path();
  std::ostringstream out;
  const auto inputs = OpenInputs(options, out);
  ASSERT_THAT(inputs, IsOk());
  const Examples examples = ReadAll(*inputs->test);
  ASSERT_EQ(examples.size(), 503u);
  for (std::size_t e = 0; e < examples.size(); ++e) {
    for (std::size_t c = 0; c < examples.columns; ++c) {
      EXPECT_LT(examples.RowsOf(e)[c], inputs->test->columns()[c].rows);
    }
  }
  EXPECT_EQ(examples.RowsOf(500)[0], kUnseenRow);
  EXPECT_EQ(examples.RowsOf(501)[2], kMissingRow);
}

TEST(OpenInputs, HoldsOutAShareOfOneFileWithoutOverlap) {
  std::string text;
  for (int i = 0; i < 5000; ++i) {
    text += "u" + std::to_string(i % 50) + "\ti" + std::to_string(i % 37) + "\t" +
            std::to_string(i) + "\n";
  }
  const TempFile file(text);
  InputOptions options;
  options.train_path = file.path();
  options.holdout_share = 0.2;
  std::ostringstream out;
  const auto inputs = OpenInputs(options, out);
  ASSERT_THAT(inputs, IsOk());
  EXPECT_EQ(inputs->model, ModelKind::kMf);
  EXPECT_EQ(inputs->loss, Loss::kSquared);
  const Examples train = ReadAll(*inputs->train);
  const Examples test = ReadAll(*inputs->test);
  std::vector<float> labels = train.labels;
  labels.insert(labels.end(), test.labels.begin(), test.labels.end());
  std::ranges::sort(labels);
  ASSERT_EQ(labels.size(), 5000u);
  for (int i = 0; i < 5000; ++i) EXPECT_EQ(labels[i], static_cast<float>(i));
  EXPECT_NEAR(static_cast<double>(test.size()), 1000.0, 150.0);
}

TEST(OpenInputs, CountsBadRowsOnceHoweverOftenAFileIsRead) {
  const TempFile file("label,a\n1,x\nbad\n0,y\nworse\n1,z\n");
  InputOptions options;
  options.train_path = file.path();
  options.test_path = file.path();
  std::ostringstream out;
  const auto inputs = OpenInputs(options, out);
  ASSERT_THAT(inputs, IsOk());
  for (int pass = 0; pass < 3; ++pass) {
    ReadAll(*inputs->train);
    ReadAll(*inputs->test);
  }
  EXPECT_EQ(inputs->train_bad_rows->count(), 2);
  EXPECT_EQ(inputs->bad_rows(), 4);
}

TEST(OpenInputs, FailsAtABadRowWhenStrict) {
  const TempFile file("label,a\n1,x\nbad\n");
  InputOptions options;
  options.train_path = file.path();
  options.strict = true;
  std::ostringstream out;
  const auto inputs = OpenInputs(options, out);
  EXPECT_TRUE(absl::IsInvalidArgument(inputs.status()));
  EXPECT_THAT(Message(inputs.status()), HasSubstr(":3: 1 fields"));
}

TEST(OpenInputs, SaysHowColumnsOfTheTestFileDiffer) {
  const TempFile train("label,a,b\n1,x,y\n");
  const TempFile test("label,a,c\n1,x,y\n");
  InputOptions options;
  options.train_path = train.path();
  options.test_path = test.path();
  std::ostringstream out;
  const auto inputs = OpenInputs(options, out);
  EXPECT_TRUE(absl::IsInvalidArgument(inputs.status()));
  EXPECT_THAT(Message(inputs.status()), HasSubstr("columns are a, c; the training data has a, b"));
}

TEST(OpenInputs, RefusesMatrixFactorizationOfMoreThanTwoColumns) {
  const TempFile file("label,a,b,c\n1,x,y,z\n");
  InputOptions options;
  options.train_path = file.path();
  options.model = ModelKind::kMf;
  std::ostringstream out;
  EXPECT_TRUE(absl::IsInvalidArgument(OpenInputs(options, out).status()));
}

TEST(OpenInputs, NeedsNoLookAtClickLogsWithRawIds) {
  std::string text;
  for (int i = 0; i < 100; ++i) {
    text += std::to_string(i % 2);
    for (int c = 0; c < 13; ++c) text += "\t" + std::to_string(i);
    for (int c = 0; c < 26; ++c) text += "\tabc" + std::to_string(i);
    text += "\n";
  }
  const TempFile file(text);
  InputOptions options;
  options.train_path = file.path();
  options.rule.raw_ids = true;
  std::ostringstream out;
  const auto inputs = OpenInputs(options, out);
  ASSERT_THAT(inputs, IsOk());
  EXPECT_THAT(out.str(), HasSubstr("C26: values hashed to 64-bit ids"));
  EXPECT_THAT(out.str(), HasSubstr("I1: numbers by half powers of two, hashed"));
  EXPECT_EQ(ReadAll(*inputs->train).size() + ReadAll(*inputs->test).size(), 100u);
}

TEST(InputOptionsValidate, WantsExactlyOneInput) {
  InputOptions options;
  EXPECT_TRUE(absl::IsInvalidArgument(options.Validate()));
  options.generate = 10;
  EXPECT_THAT(options.Validate(), IsOk());
  options.train_path = "x.csv";
  EXPECT_TRUE(absl::IsInvalidArgument(options.Validate()));
}

}  // namespace
}  // namespace embla::train
