#include "tools/train/column_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "tools/train/random.h"

namespace embla::train {
namespace {

using ::testing::HasSubstr;

ColumnRule Rule(std::size_t as_is_max, std::uint32_t hash_rows) {
  ColumnRule rule;
  rule.as_is_max = as_is_max;
  rule.hash_rows = hash_rows;
  return rule;
}

TEST(BucketOf, DoublesEveryTwoBuckets) {
  for (const double value : {1.0, 3.0, 100.0, 0.25, 77516.0}) {
    EXPECT_EQ(BucketOf(2.0 * value), BucketOf(value) + 2) << value;
    EXPECT_EQ(BucketOf(-value), -BucketOf(value)) << value;
  }
  EXPECT_EQ(BucketOf(0.0), 0);
  EXPECT_EQ(BucketOf(100.0), BucketOf(120.0));
  EXPECT_NE(BucketOf(100.0), BucketOf(150.0));
}

TEST(BucketOf, NeverDecreasesAndStaysInRange) {
  Random random(3);
  double former = 0.0;
  for (int i = 0; i < 10000; ++i) {
    const double value = former + std::exp2(200.0 * random.Uniform() - 100.0);
    EXPECT_GE(BucketOf(value), BucketOf(former)) << value;
    former = value > 1e60 ? 0.0 : value;
  }
  EXPECT_EQ(BucketOf(std::numeric_limits<double>::max()), kBucketMax);
  EXPECT_EQ(BucketOf(-std::numeric_limits<double>::max()), -kBucketMax);
  EXPECT_GE(BucketOf(std::numeric_limits<double>::denorm_min()), 1);
}

TEST(ColumnProfileChoose, TakesTextAsItIsWithRowsForMissingAndUnseen) {
  ColumnProfile profile(Rule(100, 1000), false, 0);
  for (const char* cell : {"red", "green", "", "red"}) profile.Add(cell);
  const ColumnEncoder encoder = profile.Choose();
  EXPECT_EQ(encoder.rows(), 4u);
  EXPECT_EQ(encoder.Encode(""), kMissingRow);
  EXPECT_EQ(encoder.Encode("blue"), kUnseenRow);
  EXPECT_EQ(encoder.Encode("red"), 2u);
  EXPECT_EQ(encoder.Encode("green"), 3u);
}

TEST(ColumnProfileChoose, BucketsNumbersOnlyWhenTheyAreMany) {
  ColumnProfile few(Rule(10, 1000), false, 0);
  ColumnProfile many(Rule(10, 1000), false, 0);
  for (int i = 1; i <= 10; ++i) few.Add(std::to_string(i));
  for (int i = 1; i <= 11; ++i) many.Add(std::to_string(i));
  EXPECT_THAT(few.Choose().Describe(), HasSubstr("10 values as they are"));
  EXPECT_THAT(many.Choose().Describe(), HasSubstr("buckets by half powers of two"));
}

TEST(ColumnProfileChoose, NeverBucketsNumbersThatAreNames) {
  ColumnProfile profile(Rule(10, 1000), true, 0);
  for (int i = 0; i < 500; ++i) profile.Add(std::to_string(10000 + i));
  EXPECT_THAT(profile.Choose().Describe(), HasSubstr("500 values as they are"));
}

TEST(ColumnProfileChoose, OneWordAmongNumbersMakesAColumnText) {
  ColumnProfile profile(Rule(10, 1000), false, 0);
  for (int i = 0; i < 50; ++i) profile.Add(std::to_string(i));
  profile.Add("n/a");
  EXPECT_EQ(profile.Choose().rows(), 53u);
}

TEST(ColumnProfileChoose, HashesTextWithTooManyValues) {
  ColumnProfile profile(Rule(10, 64), false, 5);
  for (int i = 0; i < 100; ++i) profile.Add("user" + std::to_string(i));
  const ColumnEncoder encoder = profile.Choose();
  EXPECT_EQ(encoder.rows(), 64u);
  EXPECT_EQ(encoder.Encode(""), kMissingRow);
  for (int i = 0; i < 1000; ++i) {
    const std::uint32_t row = encoder.Encode("user" + std::to_string(i));
    EXPECT_GE(row, 1u);
    EXPECT_LT(row, 64u);
  }
}

TEST(ColumnProfileIsRecordId, NeedsAnotherValueInEveryRecord) {
  struct Case {
    const char* name;
    int cells;
    std::string (*cell)(int);
    bool is_id;
  };
  const Case cases[] = {
      {"text", 200, [](int i) { return "u" + std::to_string(i); }, true},
      {"a row number", 200, [](int i) { return std::to_string(i); }, true},
      {"shuffled", 200, [](int i) { return std::to_string(5000 + i * 77 % 200); }, true},
      {"too few", 99, [](int i) { return "u" + std::to_string(i); }, false},
      {"one twice", 200, [](int i) { return "u" + std::to_string(i % 199); }, false},
      {"one missing", 200, [](int i) { return i == 50 ? "" : std::to_string(i); }, false},
      {"measured", 200, [](int i) { return std::to_string(i) + ".5"; }, false},
      {"far apart", 200, [](int i) { return std::to_string(i * 1000); }, false},
  };
  for (const Case& test : cases) {
    for (const bool raw_ids : {false, true}) {
      ColumnRule rule = Rule(20, 1000);
      rule.raw_ids = raw_ids;
      ColumnProfile profile(rule, false, 0);
      for (int i = 0; i < test.cells; ++i) profile.Add(test.cell(i));
      EXPECT_EQ(profile.IsRecordId(), test.is_id) << test.name;
    }
  }
}

TEST(ColumnEncoderEncode, PutsNumbersBeyondTheTrainedOnesIntoTheOuterBuckets) {
  const ColumnEncoder encoder = ColumnEncoder::Bucketed(BucketOf(8.0), BucketOf(64.0));
  EXPECT_EQ(encoder.rows(), 9u);  // 7 buckets, missing and unseen.
  EXPECT_EQ(encoder.Encode("1"), encoder.Encode("8"));
  EXPECT_EQ(encoder.Encode("1000"), encoder.Encode("64"));
  EXPECT_EQ(encoder.Encode("-5"), encoder.Encode("8"));
  EXPECT_EQ(encoder.Encode("many"), kUnseenRow);
  EXPECT_EQ(encoder.Encode("nan"), kUnseenRow);
}

TEST(ColumnEncoderEncode, SpreadsHashedValuesAndDiffersBetweenColumns) {
  const ColumnEncoder first = ColumnEncoder::Hashed(1001, 1);
  const ColumnEncoder second = ColumnEncoder::Hashed(1001, 2);
  std::set<std::uint32_t> rows;
  int same = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::string value = std::to_string(i);
    rows.insert(first.Encode(value));
    if (first.Encode(value) == second.Encode(value)) ++same;
  }
  EXPECT_GT(rows.size(), 980u);  // Expected: 993 of 1000.
  EXPECT_LT(same, 25);           // 5 are expected.
}

TEST(ColumnEncoderEncode, HashIsTheSameEverywhere) {
  EXPECT_EQ(ColumnEncoder::Hashed(1u << 20, 3).Encode("68fd1e64"), 544887u);
}

TEST(ColumnEncoderRaw, NeedsNoDictionaryAndKeepsColumnsApart) {
  const ColumnEncoder a = ColumnEncoder::Raw(0);
  const ColumnEncoder b = ColumnEncoder::Raw(1);
  EXPECT_EQ(a.rows(), 0u);
  EXPECT_EQ(a.Encode("red"), ColumnEncoder::Raw(0).Encode("red"));
  EXPECT_NE(a.Encode("red"), a.Encode("blue"));
  EXPECT_NE(a.Encode("red"), b.Encode("red"));
  EXPECT_NE(a.Encode(""), b.Encode(""));
}

TEST(ColumnEncoderRaw, NumbersAreBucketedOrStayAsTheyAre) {
  const ColumnEncoder buckets = ColumnEncoder::RawBucketed(3);
  EXPECT_EQ(buckets.Encode("100"), buckets.Encode("120"));
  EXPECT_NE(buckets.Encode("100"), buckets.Encode("150"));
  const ColumnEncoder users = ColumnEncoder::RawNumbers(0);
  EXPECT_EQ(users.Encode("-7"), -7);
  EXPECT_EQ(users.Encode("9223372036854775807"), INT64_MAX);
  EXPECT_NE(users.Encode("u7"), 7);
}

TEST(ColumnProfileRaw, BucketsNumbersOfManyValuesAndHashesTheRest) {
  const ColumnRule rule{.as_is_max = 3, .raw_ids = true};
  ColumnProfile many(rule, false, 0);
  for (const char* cell : {"1", "2", "4", "8", "16"}) many.Add(cell);
  EXPECT_EQ(many.Choose().Encode("5"), ColumnEncoder::RawBucketed(0).Encode("5"));
  ColumnProfile few(rule, false, 0);
  for (const char* cell : {"1", "2", "4"}) few.Add(cell);
  EXPECT_EQ(few.Choose().Encode("5"), ColumnEncoder::Raw(0).Encode("5"));
  ColumnProfile text(rule, false, 0);
  for (const char* cell : {"1", "2", "x", "y", "z"}) text.Add(cell);
  EXPECT_EQ(text.Choose().Encode("5"), ColumnEncoder::Raw(0).Encode("5"));
}

}  // namespace
}  // namespace embla::train
