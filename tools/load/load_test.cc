#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "tools/load/bench_report.h"
#include "tools/load/id_stream.h"
#include "tools/load/latency_histogram.h"
#include "tools/load/suite.h"
#include "tools/load/workload.h"

namespace embla::load {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kSeed = 5;

// How often the rows were drawn, the most frequent first.
std::vector<double> Shares(const IdDistribution& distribution, std::int64_t rows, int draws) {
  std::mt19937_64 random(kSeed);
  std::vector<double> shares(rows);
  for (int i = 0; i < draws; ++i) {
    const std::int64_t id = distribution.Draw(random);
    EXPECT_GE(id, 0);
    EXPECT_LT(id, rows);
    shares[id] += 1.0 / draws;
  }
  std::ranges::sort(shares, std::greater());
  return shares;
}

TEST(IdDistributionDraw, UniformTreatsAllRowsAlike) {
  const auto distribution = IdDistribution::Parse("uniform", 100);
  ASSERT_THAT(distribution, IsOk());
  const auto shares = Shares(*distribution, 100, 1000000);
  EXPECT_NEAR(shares.front(), 0.01, 0.0005);
  EXPECT_NEAR(shares.back(), 0.01, 0.0005);
}

TEST(IdDistributionDraw, ZipfSharesEqualTheDefinition) {
  for (const double s : {0.5, 1.0, 1.2, 2.5}) {
    SCOPED_TRACE(s);
    constexpr int kRows = 1000;
    const auto distribution = IdDistribution::Parse("zipf:" + std::to_string(s), kRows);
    ASSERT_THAT(distribution, IsOk());
    const auto shares = Shares(*distribution, kRows, 1000000);
    double sum = 0.0;
    for (int rank = 1; rank <= kRows; ++rank) sum += std::pow(rank, -s);
    for (int rank = 1; rank <= 8; ++rank) {
      const double expected = std::pow(rank, -s) / sum;
      EXPECT_NEAR(shares[rank - 1], expected, 5e-3 * expected + 8e-4) << "rank " << rank;
    }
  }
}

TEST(IdDistributionDraw, ZipfWorksForTablesOfAnySize) {
  std::mt19937_64 random(kSeed);
  for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{2}, std::int64_t{1} << 40}) {
    const auto distribution = IdDistribution::Parse("zipf:1.05", rows);
    ASSERT_THAT(distribution, IsOk());
    for (int i = 0; i < 1000; ++i) {
      const std::int64_t id = distribution->Draw(random);
      ASSERT_GE(id, 0);
      ASSERT_LT(id, rows);
    }
  }
}

TEST(IdDistributionDraw, ReuseGivesEveryClassItsShareOfLookups) {
  // Half of the lookups go to rows looked up once, half to rows looked up about 24 times.
  const double shares[] = {0.5, 0.0, 0.0, 0.0, 0.0, 0.5};
  constexpr int kRows = 2500;
  const auto distribution = IdDistribution::FromReuse(shares, kRows);
  ASSERT_THAT(distribution, IsOk());
  const auto drawn = Shares(*distribution, kRows, 1000000);
  constexpr int kHotRows = 100;  // 1 / 24 as many as the others.
  EXPECT_NEAR(std::accumulate(drawn.begin(), drawn.begin() + kHotRows, 0.0), 0.5, 0.01);
}

TEST(IdDistributionParse, SaysWhatIsWrong) {
  for (const char* text :
       {"", "zipf", "zipf:", "zipf:0", "zipf:-1", "zipf:nan", "zipf:1x", "even"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(IdDistribution::Parse(text, 10).status())) << text;
  }
  const auto missing = IdDistribution::Parse("reuse:/nowhere.json", 10);
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_THAT(Message(missing.status()), HasSubstr("/nowhere.json"));
  EXPECT_THAT(IdDistribution::FromReuse(std::vector{0.0, 0.0}, 10),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(LatencyHistogramQuantile, IsWithinTwoPercentOfSortedSamples) {
  std::mt19937_64 random(kSeed);
  std::lognormal_distribution<double> lognormal(11.0, 2.0);  // Around 60 us.
  std::vector<double> samples;
  LatencyHistogram histogram;
  for (int i = 0; i < 100000; ++i) {
    samples.push_back(std::floor(lognormal(random)));
    histogram.Add(absl::Nanoseconds(samples.back()));
  }
  std::ranges::sort(samples);
  for (const double quantile : {0.001, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const double exact = samples[std::max(1.0, std::ceil(quantile * 100000.0)) - 1];
    const double got = absl::ToDoubleNanoseconds(histogram.Quantile(quantile));
    EXPECT_GE(got, exact) << quantile;
    EXPECT_LE(got, 1.016 * exact + 1.0) << quantile;
  }
  EXPECT_EQ(histogram.max(), histogram.Quantile(1.0));
}

TEST(LatencyHistogramAdd, TakesAnyDuration) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.Quantile(0.5), absl::ZeroDuration());
  for (const absl::Duration latency :
       {-absl::Seconds(1), absl::ZeroDuration(), absl::Hours(100), absl::InfiniteDuration()}) {
    histogram.Add(latency);
  }
  EXPECT_EQ(histogram.count(), 4u);
  EXPECT_EQ(histogram.Quantile(0.5), absl::ZeroDuration());
  EXPECT_EQ(histogram.max(), absl::Hours(1));
  LatencyHistogram other;
  other.Add(absl::Microseconds(5));
  histogram.Merge(other);
  EXPECT_EQ(histogram.count(), 5u);
}

TEST(CasePayload, CountsIdsLengthsAndRows) {
  Case load;
  load.ids = 10;
  load.dim = 16;
  EXPECT_EQ(load.IdBytes(), 80);
  EXPECT_EQ(load.RowBytes(), 640);
  load.pooled = true;  // Ten bags of one id.
  EXPECT_EQ(load.IdBytes(), 80 + 40);
  EXPECT_EQ(load.RowBytes(), 640);
  load.bag = 4;  // Bags of 4, 4 and 2.
  load.tables = 2;
  load.wire = client::WireFormat::kBf16;
  EXPECT_EQ(load.output_rows(), 6);
  EXPECT_EQ(load.IdBytes(), 2 * (80 + 12));
  EXPECT_EQ(load.RowBytes(), 6 * 32);
}

TEST(CaseValidate, NamesTheOption) {
  Case load;
  EXPECT_THAT(load.Validate(), IsOk());
  load.bag = load.ids + 1;
  EXPECT_THAT(Message(load.Validate()), HasSubstr("--bag is 4097"));
  load.bag = 1;
  load.ids = 1 << 24;
  load.dim = 2048;
  EXPECT_THAT(Message(load.Validate()), HasSubstr("bytes, at most"));
}

TEST(RequestSet, CoversAllIdsWithBags) {
  Case load;
  load.ids = 10;
  load.bag = 4;
  load.dim = 2;
  load.tables = 2;
  const auto distribution = IdDistribution::Parse("uniform", 100);
  const RequestSet requests(load, {"a", "b"}, *distribution, kSeed);
  std::vector<float> rows(requests.row_floats());
  EXPECT_EQ(rows.size(), 12u);
  const auto features = requests.Lookup(3, rows);
  ASSERT_EQ(features.size(), 2u);
  EXPECT_EQ(features[0].table, "a");
  EXPECT_EQ(features[1].ids.size(), 10u);
  EXPECT_EQ(features[1].rows_out.size(), 6u);
  EXPECT_THAT(features[0].lengths, ElementsAre(4u, 4u, 2u));
  EXPECT_EQ(features[0].pooling, client::Pooling::kSum);
  EXPECT_FALSE(std::ranges::equal(features[0].ids, features[1].ids));
}

TEST(RequestSet, HasBagsOfOneIdWhereTheyAreAskedFor) {
  Case load;
  load.ids = 3;
  load.pooled = true;
  const auto distribution = IdDistribution::Parse("uniform", 100);
  const RequestSet requests(load, {"a"}, *distribution, kSeed);
  std::vector<float> rows(requests.row_floats());
  const auto features = requests.Lookup(0, rows);
  EXPECT_THAT(features[0].lengths, ElementsAre(1u, 1u, 1u));
  EXPECT_EQ(features[0].pooling, client::Pooling::kSum);
}

TEST(ServiceSuite, HoldsValidCasesThatCompareWithEachOther) {
  const std::vector<Case> cases = ServiceSuite();
  for (const Case& load : cases) {
    EXPECT_THAT(load.Validate(), IsOk()) << load.name;
    if (load.compared_with.empty()) continue;
    EXPECT_TRUE(std::ranges::count(cases, load.compared_with, &Case::name) == 1) << load.name;
  }
}

TEST(ResultsToJson, HoldsTheFiguresThatDocumentsQuote) {
  CaseResult result;
  result.load.name = "lookup";
  result.rows_per_second = 1e6;
  result.lookups.Add(absl::Microseconds(100));
  result.bytes_sent_per_request = 4096.0;
  result.ceilings.push_back({"grpc_stream", 2e6, 0.5});
  const auto json = nlohmann::json::parse(ResultsToJson({result}, RunSettings()));
  const auto& entry = json.at("cases").at(0);
  EXPECT_EQ(entry.at("rows_per_second"), 1e6);
  EXPECT_EQ(entry.at("bytes_sent_per_request"), 4096.0);
  EXPECT_EQ(entry.at("ceilings").at("grpc_stream").at("ratio"), 0.5);
  EXPECT_EQ(entry.at("lookup_latency").at("count"), 1);
  EXPECT_TRUE(entry.at("update_latency").is_null());
  std::ostringstream table;
  PrintResults({result}, table);
  EXPECT_THAT(table.str(), HasSubstr("of grpc_stream        50.0 %"));
}

}  // namespace
}  // namespace embla::load
