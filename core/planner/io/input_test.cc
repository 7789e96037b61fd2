// The planner's input files: what they mean, what they refuse, and that no bytes crash a reader.
#include <cstdio>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "core/planner/io/csv.h"
#include "core/planner/io/problem_json.h"
#include "core/planner/io/table_json.h"
#include "core/planner/io/topology_json.h"
#include "core/planner/problem/solution.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::planner {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kProblem[] = R"({
  "tables": [
    {"name": "clicks", "rows": 1000, "dim": 64, "pooling": 2.5, "poolings": 2,
     "optimizer": "rowwise_adagrad", "weighted": true,
     "frequency": [[0.1, 0.6], [0.5, 0.9]],
     "rules": {"types": ["row_wise"], "spread": "devices"}},
    {"name": "users", "rows": 20, "dim": 8, "element_bytes": 2, "pooled": false}
  ],
  "topology": {
    "hosts": [{"name": "gpu", "count": 2, "devices": 4, "device_memory": "80GiB",
               "memory": "1TiB", "ssd": "2TiB", "group": "fast"},
              {"name": "odd", "devices": [{"memory": 1024}, {"slowdown": 1.5, "group": "slow"}]}],
    "bandwidth": {"inter_host": 25}
  },
  "constraints": {"*": {"kernels": ["device"]}, "us*": {"kernels": ["host"]},
                  "users": {"hosts": ["odd"]}},
  "reservation": {"kind": "heuristical", "fraction": 0.1, "dense_bytes": "1GiB"},
  "calibration": {"tables": {"users": 1.25}, "devices": {"gpu0001": 1.1, "gpu0000:3": 0.9}},
  "batch": 128, "cost": "embla", "pipeline": "prefetch", "cache_fraction": 0.3,
  "min_partition": 16, "all_widths": true, "replicas": "auto", "sync_period_steps": 10
})";

absl::Status Read(std::string_view text, Problem* problem) {
  const absl::StatusOr<Document> document = ParseDocument(text);
  if (!document.ok()) return document.status();
  return ReadProblem(*document, problem);
}

std::string ErrorOf(std::string_view text) {
  Problem problem;
  const absl::Status status = Read(text, &problem);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return Message(status);
}

std::string CsvError(std::string_view text) {
  const auto tables = TablesFromCsv(text);
  EXPECT_EQ(tables.status().code(), absl::StatusCode::kInvalidArgument);
  return Message(tables.status());
}

TEST(CsvReads, QuotedCellsInAnyColumnOrder) {
  const auto tables = TablesFromCsv(
      "\xef\xbb\xbf"
      "dim,name,rows,pooling,poolings\r\n"
      "8,\"a, \"\"b\"\"\nc\",10,1.5,2\r\n\r\n 16 , plain , 20 ,1,1");
  ASSERT_THAT(tables, IsOk());
  ASSERT_EQ(tables->size(), 2u);
  EXPECT_EQ((*tables)[0].name, "a, \"b\"\nc");
  EXPECT_EQ((*tables)[0].lookups_per_sample, 3.0);
  EXPECT_EQ((*tables)[1].name, "plain");
  EXPECT_EQ((*tables)[1].dim, 16u);
}

TEST(CsvRefuses, NamesLineAndColumn) {
  EXPECT_THAT(CsvError(""), HasSubstr("no header line"));
  EXPECT_THAT(CsvError("name,rows\na,1"), HasSubstr("column dim is missing"));
  EXPECT_THAT(CsvError("name,rows,dim,colour\n"), HasSubstr("unknown column 'colour'"));
  EXPECT_THAT(CsvError("name,rows,dim,dim\n"), HasSubstr("column dim stands twice"));
  EXPECT_THAT(CsvError("name,rows,dim\na,1,4\n\n\"b\nb\",x,4"),
              HasSubstr("line 4, column rows: 'x'"));
  EXPECT_THAT(CsvError("name,rows,dim\na,1"), HasSubstr("line 2 has 2 cells, the header 3"));
  EXPECT_THAT(CsvError("name,rows,dim\n\"a,1,4"), HasSubstr("line 2: a quote is never closed"));
  EXPECT_THAT(CsvError("name,rows,dim\n\"a\"b,1,4"), HasSubstr("text after a closing quote"));
}

TEST(TopologyReads, Shorthand) {
  const auto topology = TopologyFromWord("2x8");
  ASSERT_THAT(topology, IsOk());
  ASSERT_EQ(topology->hosts.size(), 2u);
  EXPECT_EQ(topology->hosts[1].name, "h0001");
  EXPECT_EQ(topology->hosts[1].devices.size(), 8u);
  EXPECT_EQ(topology->hosts[1].devices[7].memory_bytes, std::int64_t{32} << 30);
  for (const char* bad :
       {"", "x", "0x8", "2x", "2x-1", "70000x1", "2x8x1", "4294967296x4294967296"}) {
    EXPECT_THAT(TopologyFromWord(bad), StatusIs(absl::StatusCode::kInvalidArgument)) << bad;
  }
}

TEST(ProblemReads, EveryField) {
  Problem p;
  ASSERT_THAT(Read(kProblem, &p), IsOk());
  ASSERT_EQ(p.tables.size(), 2u);
  EXPECT_EQ(p.tables[0].lookups_per_sample, 5.0);
  EXPECT_EQ(p.tables[0].optimizer, OptimizerKind::kRowwiseAdagrad);
  EXPECT_EQ(p.tables[0].rules.spread, Spread::kDevices);
  EXPECT_THAT(p.tables[0].rules.kernels, ElementsAre(Kernel::kDevice));
  EXPECT_THAT(p.tables[1].rules.kernels, ElementsAre(Kernel::kHost));
  EXPECT_THAT(p.tables[1].rules.hosts, ElementsAre("odd"));
  EXPECT_EQ(p.tables[1].measured_factor, 1.25);
  ASSERT_EQ(p.topology.hosts.size(), 3u);
  EXPECT_EQ(p.topology.hosts[1].name, "gpu0001");
  EXPECT_EQ(p.topology.hosts[1].devices[2].slowdown, 1.1);
  EXPECT_EQ(p.topology.hosts[0].devices[3].slowdown, 0.9);
  EXPECT_EQ(p.topology.hosts[0].memory_bytes, std::int64_t{1} << 40);
  EXPECT_EQ(p.topology.hosts[2].devices[0].memory_bytes, 1024);
  EXPECT_EQ(p.topology.hosts[2].devices[1].group, "slow");
  EXPECT_EQ(p.topology.bandwidth.inter_host, 25);
  EXPECT_EQ(p.reservation.dense_bytes, std::int64_t{1} << 30);
  EXPECT_EQ(p.cost, CostKind::kEmbla);
  EXPECT_EQ(p.replicas, 0u);
  EXPECT_TRUE(p.all_widths);
  EXPECT_THAT(Validate(p), IsOk());
}

TEST(ProblemRoundTrips, ThroughJson) {
  Problem before, after;
  ASSERT_THAT(Read(kProblem, &before), IsOk());
  before.tables[0].lookups_per_sample = 0.1 + 0.2;
  ASSERT_THAT(Read(ProblemToJson(before).dump(), &after), IsOk());
  EXPECT_EQ(DigestOf(before), DigestOf(after));
}

TEST(ProblemRefuses, NamesTheField) {
  EXPECT_THAT(ErrorOf("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(ErrorOf("3"), HasSubstr("problem is number, not an object"));
  EXPECT_THAT(ErrorOf(R"({"batch": 1, "batch": 2})"), HasSubstr("\"batch\" is given twice"));
  EXPECT_THAT(ErrorOf(R"({"bach": 1})"), HasSubstr("unknown field \"bach\""));
  EXPECT_THAT(ErrorOf(R"([{"name": "a", "rows": 1, "dim": 4, "colour": 1}])"),
              HasSubstr("tables[0] a: table: unknown field \"colour\""));
  EXPECT_THAT(ErrorOf(R"([{"name": "a", "rows": 0, "dim": 4}])"), HasSubstr("field \"rows\""));
  EXPECT_THAT(ErrorOf(R"([{"name": "a", "rows": 1, "dim": 4, "rules": {"types": ["rowwise"]}}])"),
              HasSubstr("field \"types\": "));
  EXPECT_THAT(ErrorOf(R"({"topology": {"hosts": [{"name": "a"}]}})"),
              HasSubstr("topology, hosts[0]: host, field \"devices\": is missing"));
  EXPECT_THAT(ErrorOf(R"({"topology": {"hosts": [{"name": "a", "devices": 9, "count": 60000}]}})"),
              HasSubstr("more than 65536 devices"));
  EXPECT_THAT(ErrorOf(R"({"topology": {"hosts": [{"name": "a", "devices": 1, "memory": "2GB"}]}})"),
              HasSubstr("'2GB' is not a size"));
  EXPECT_THAT(ErrorOf(R"({"tables": [], "constraints": {"a": {}}})"),
              HasSubstr("there is no table \"a\""));
  EXPECT_THAT(ErrorOf(R"({"tables": [], "constraints": {"a*": {}}})"),
              HasSubstr("there is no table \"a*\""));
  EXPECT_THAT(ErrorOf(R"({"calibration": {"devices": {"h:1": 2}}})"), HasSubstr("\"h:1\""));
  EXPECT_THAT(ErrorOf(R"({"reservation": {"kind": "some"}})"), HasSubstr("field \"kind\""));
}

TEST(PatternMatches, Stars) {
  EXPECT_TRUE(MatchesPattern("*", ""));
  EXPECT_TRUE(MatchesPattern("a*c*e", "abcde"));
  EXPECT_TRUE(MatchesPattern("*ab", "aab"));
  EXPECT_FALSE(MatchesPattern("a*c", "abd"));
  EXPECT_FALSE(MatchesPattern("a", "ab"));
  EXPECT_FALSE(MatchesPattern("ab", "a"));
}

// Some bytes changed, dropped, doubled.
std::string Mutate(std::string text, std::mt19937& random) {
  static constexpr std::string_view kAlphabet = "{}[]\",:0123456789.eE-+xXGi*\n\t\\aztrue\xff";
  const int changes = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < changes && !text.empty(); ++i) {
    const std::size_t at = random() % text.size();
    switch (random() % 4) {
      case 0:
        text[at] = kAlphabet[random() % kAlphabet.size()];
        break;
      case 1:
        text.erase(at, 1 + random() % 9);
        break;
      case 2:
        text.insert(at, text.substr(random() % text.size(), random() % 20));
        break;
      default:
        text.insert(at, 1, kAlphabet[random() % kAlphabet.size()]);
    }
  }
  return text;
}

// Checks the message for bad input; a crash ends the test.
void ExpectClear(const absl::Status& status, const std::string& text) {
  if (status.ok()) return;
  ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  ASSERT_GT(status.message().size(), 10u) << text;
}

TEST(Readers, SurviveTenThousandMutations) {
  std::mt19937 random(embla::testing::TestSeed());
  const std::string csv = "name,rows,dim,pooling,optimizer\n\"a,b\",10,4,1.5,sgd\nc,20,8,2,adam\n";
  for (int round = 0; round < 10'000; ++round) {
    const std::string text = Mutate(kProblem, random);
    Problem problem;
    const absl::Status read = Read(text, &problem);
    ExpectClear(read, text);
    if (read.ok()) ExpectClear(Validate(problem), text);
    const std::string table_text = Mutate(csv, random);
    ExpectClear(TablesFromCsv(table_text).status(), table_text);
  }
}

}  // namespace
}  // namespace embla::planner
