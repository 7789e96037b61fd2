#include "tools/train/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "tools/train/random.h"
#include "tools/train/testing/temp_file.h"

namespace embla::train {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempFile;

struct Row {
  float label;
  std::vector<std::string> cells;
  bool operator==(const Row&) const = default;
};

struct Outcome {
  absl::Status status;
  Format format = Format::kAuto;
  std::vector<std::string> columns;
  std::vector<Row> rows;
  std::int64_t bad_rows = 0;
  std::string shown;
};

struct ReadOptions {
  Format format = Format::kAuto;
  CsvColumns columns;
  LabelKind label_kind = LabelKind::kBinary;
  int shown_max = 5;
  bool strict = false;
};

Outcome ReadAll(const std::string& content, const ReadOptions& options = {}) {
  const TempFile file(content);
  Outcome outcome;
  auto opened = OpenFormat(file.path(), options.format, options.columns, options.label_kind);
  outcome.status = opened.status();
  if (!opened.ok()) return outcome;
  outcome.format = opened->format;
  outcome.columns = opened->parser->columns();
  std::ostringstream shown;
  BadRows bad_rows(shown, options.shown_max, options.strict);
  auto reader = RecordReader::Open(file.path(), *opened->parser, bad_rows);
  outcome.status = reader.status();
  Record record;
  while (outcome.status.ok()) {
    const auto more = (*reader)->Next(record);
    outcome.status = more.status();
    if (!more.ok() || !*more) break;
    outcome.rows.push_back({record.label, {record.cells.begin(), record.cells.end()}});
  }
  outcome.bad_rows = bad_rows.count();
  outcome.shown = shown.str();
  return outcome;
}

std::string CriteoRow(const std::string& label, const std::string& integer,
                      const std::string& category) {
  std::string row = label;
  for (int i = 0; i < 13; ++i) row += "\t" + integer;
  for (int i = 0; i < 26; ++i) row += "\t" + category;
  return row + "\n";
}

TEST(CsvParserParse, TakesTheLabelOutAndKeepsTheOrderOfColumns) {
  const Outcome outcome = ReadAll("a,label,b\nx,1,y\nz,0,\n");
  ASSERT_THAT(outcome.status, IsOk());
  EXPECT_EQ(outcome.format, Format::kCsv);
  EXPECT_THAT(outcome.columns, ElementsAre("a", "b"));
  EXPECT_THAT(outcome.rows, ElementsAre(Row{1.0f, {"x", "y"}}, Row{0.0f, {"z", ""}}));
}

TEST(CsvParserParse, UnderstandsQuotedFields) {
  const Outcome outcome =
      ReadAll("label,\"a,1\",b\n1,\"x,y\",\"say \"\"no\"\"\"\n0,\"two\nlines\",\"\"\n");
  ASSERT_THAT(outcome.status, IsOk());
  EXPECT_EQ(outcome.bad_rows, 0);
  EXPECT_THAT(outcome.columns, ElementsAre("a,1", "b"));
  EXPECT_THAT(outcome.rows,
              ElementsAre(Row{1.0f, {"x,y", "say \"no\""}}, Row{0.0f, {"two\nlines", ""}}));
}

TEST(CsvParserParse, TakesAQuoteInsideAFieldAsItIs) {
  const Outcome outcome = ReadAll("label,a\n1,5\" disk\n0,b\n");
  ASSERT_THAT(outcome.status, IsOk());
  EXPECT_THAT(outcome.rows, ElementsAre(Row{1.0f, {"5\" disk"}}, Row{0.0f, {"b"}}));
}

TEST(CsvParserParse, FindsTheSeparatorInTheHeader) {
  EXPECT_THAT(ReadAll("label;a;b\n1;x,1;y\n").rows, ElementsAre(Row{1.0f, {"x,1", "y"}}));
  EXPECT_THAT(ReadAll("label\ta\tb\n1\tx\ty\n").rows, ElementsAre(Row{1.0f, {"x", "y"}}));
}

TEST(CsvParserParse, FindsAnySeparatorThatCutsTheLabelOut) {
  for (const std::string separator : {",", ";", "\t", "|", "^", "~", ":", "\x01", " "}) {
    std::string text = "a,label,b\nx,1,y\nz,0,w\n";
    for (char& c : text) c = c == ',' ? separator[0] : c;
    const Outcome outcome = ReadAll(text);
    ASSERT_THAT(outcome.status, IsOk()) << "'" << separator << "'";
    EXPECT_THAT(outcome.rows, ElementsAre(Row{1.0f, {"x", "y"}}, Row{0.0f, {"z", "w"}}));
  }
  EXPECT_THAT(ReadAll("my first|label|last, not least\nx y|1|z,w\n").rows,
              ElementsAre(Row{1.0f, {"x y", "z,w"}}));
}

TEST(CsvParserParse, TakesTheSeparatorThatIsGiven) {
  ReadOptions options;
  options.columns.separator = '#';
  EXPECT_THAT(ReadAll("a#label#b,c\nx#1#y,z\n", options).rows,
              ElementsAre(Row{1.0f, {"x", "y,z"}}));
}

TEST(CsvParserParse, LeavesBlanksAroundFieldsOut) {
  EXPECT_THAT(ReadAll("a, label, b\n x , 1, \" y \"\n5,\t0,\n").rows,
              ElementsAre(Row{1.0f, {"x", " y "}}, Row{0.0f, {"5", ""}}));
  EXPECT_THAT(ReadAll("label  a b\n1  x   y \n 0 z w\n").rows,
              ElementsAre(Row{1.0f, {"x", "y"}}, Row{0.0f, {"z", "w"}}));
}

TEST(CsvParserParse, FindsTheLabelInAnyCase) {
  for (const char* label : {"Label", "LABEL", "label"}) {
    const Outcome outcome = ReadAll(std::string("a,") + label + "\nx,1\n");
    ASSERT_THAT(outcome.status, IsOk()) << label;
    EXPECT_THAT(outcome.rows, ElementsAre(Row{1.0f, {"x"}}));
  }
  EXPECT_THAT(ReadAll("Label,label\n5,1\n").rows, ElementsAre(Row{1.0f, {"5"}}));
  ReadOptions options;
  options.format = Format::kCsv;
  const Outcome outcome = ReadAll("Label,LABEL,a\n1,1,x\n", options);
  EXPECT_TRUE(absl::IsInvalidArgument(outcome.status));
  EXPECT_THAT(Message(outcome.status), HasSubstr("several columns are called 'label'"));
}

TEST(CriteoParserParse, FindsOtherSeparators) {
  std::string text = CriteoRow("1", "5", "68fd1e64") + CriteoRow("0", "", "");
  for (char& c : text) c = c == '\t' ? ',' : c;
  const Outcome outcome = ReadAll(text);
  ASSERT_THAT(outcome.status, IsOk());
  EXPECT_EQ(outcome.format, Format::kCriteo);
  EXPECT_EQ(outcome.rows.size(), 2u);
}

TEST(RatingsParserParse, FindsOtherSeparators) {
  ReadOptions options;
  options.label_kind = LabelKind::kNumber;
  for (const char* text : {"u1;i1;4.5\n", "u1|i1|4.5\n", "u1 i1 4.5\n"}) {
    const Outcome outcome = ReadAll(text, options);
    ASSERT_THAT(outcome.status, IsOk()) << text;
    EXPECT_EQ(outcome.format, Format::kRatings);
    EXPECT_THAT(outcome.rows, ElementsAre(Row{4.5f, {"u1", "i1"}}));
  }
}

TEST(CsvParserParse, LeavesOutDroppedColumns) {
  ReadOptions options;
  options.columns.dropped = {"id"};
  EXPECT_THAT(ReadAll("id,label,a\n7,1,x\n", options).rows, ElementsAre(Row{1.0f, {"x"}}));
}

TEST(CsvParserFromHeader, ListsTheColumnsWhenTheLabelIsMissing) {
  ReadOptions options;
  options.format = Format::kCsv;
  options.columns.label = "clicked";
  const Outcome outcome = ReadAll("a,b,label\n", options);
  EXPECT_TRUE(absl::IsNotFound(outcome.status));
  EXPECT_THAT(Message(outcome.status), HasSubstr("no label column 'clicked'"));
  EXPECT_THAT(Message(outcome.status), HasSubstr("a, b, label"));
}

TEST(CsvParserFromHeader, RefusesTwoColumnsOfOneName) {
  EXPECT_TRUE(absl::IsInvalidArgument(ReadAll("label,a,a\n1,2,3\n").status));
}

TEST(RecordReaderNext, CountsBadRowsAndShowsTheFirstOnesWithTheirLines) {
  ReadOptions options;
  options.shown_max = 2;
  const Outcome outcome =
      ReadAll("label,a\n1,x\n\nmaybe,x\n1\n0,\"open\n0,y\"z\n2,x\n0,last\n", options);
  ASSERT_THAT(outcome.status, IsOk());
  EXPECT_THAT(outcome.rows, ElementsAre(Row{1.0f, {"x"}}, Row{0.0f, {"last"}}));
  EXPECT_EQ(outcome.bad_rows, 4);
  EXPECT_THAT(outcome.shown, HasSubstr(":4: label 'maybe' is not a number"));
  EXPECT_THAT(outcome.shown, HasSubstr(":5: 1 fields, the header has 2"));
  EXPECT_THAT(outcome.shown, HasSubstr("more of them are only counted"));
  EXPECT_THAT(outcome.shown, Not(HasSubstr(":6:")));
}

TEST(RecordReaderNext, FailsAtTheFirstBadRowWhenStrict) {
  ReadOptions options;
  options.strict = true;
  const Outcome outcome = ReadAll("label,a\n1,x\n3,x\n", options);
  EXPECT_TRUE(absl::IsInvalidArgument(outcome.status));
  EXPECT_THAT(Message(outcome.status), HasSubstr(":3: label '3' is neither 0 nor 1"));
  EXPECT_EQ(outcome.rows.size(), 1u);
}

TEST(RecordReaderNext, DoesNotLoseTheFileToAQuoteThatIsNeverClosed) {
  std::string text = "label,a\n0,\"open\n";
  for (int i = 0; i < 200; ++i) text += "1,x\n";
  const Outcome outcome = ReadAll(text);
  ASSERT_THAT(outcome.status, IsOk());
  EXPECT_EQ(outcome.bad_rows, 1);
  EXPECT_GT(outcome.rows.size(), 130u);
}

TEST(CriteoParserParse, AllowsMissingFields) {
  const Outcome outcome =
      ReadAll(CriteoRow("1", "5", "68fd1e64") + CriteoRow("0", "", "") + CriteoRow("0", "-1", ""));
  ASSERT_THAT(outcome.status, IsOk());
  EXPECT_EQ(outcome.format, Format::kCriteo);
  ASSERT_EQ(outcome.rows.size(), 3u);
  EXPECT_EQ(outcome.bad_rows, 0);
  EXPECT_EQ(outcome.columns.front(), "I1");
  EXPECT_EQ(outcome.columns.back(), "C26");
  EXPECT_EQ(outcome.rows[0].cells.front(), "5");
  EXPECT_EQ(outcome.rows[0].cells.back(), "68fd1e64");
  EXPECT_THAT(outcome.rows[1].cells, ::testing::Each(""));
}

TEST(CriteoParserParse, SaysWhichFieldIsWrong) {
  const Outcome outcome =
      ReadAll(CriteoRow("1", "1", "ab") + CriteoRow("1", "1.5", "ab") + CriteoRow("1", "1", "xyz") +
              "1\t2\n" + CriteoRow("1", "1", "a\tb"));
  ASSERT_THAT(outcome.status, IsOk());
  EXPECT_EQ(outcome.rows.size(), 1u);
  EXPECT_EQ(outcome.bad_rows, 4);
  EXPECT_THAT(outcome.shown, HasSubstr(":2: column I1 '1.5' is not an integer"));
  EXPECT_THAT(outcome.shown, HasSubstr(":3: column C1 'xyz' is not hexadecimal"));
  EXPECT_THAT(outcome.shown, HasSubstr(":4: 2 fields"));
  EXPECT_THAT(outcome.shown, HasSubstr(":5: 41+ fields"));
}

TEST(RatingsParserParse, UnderstandsTheThreeSeparators) {
  for (const char* text : {"u1\ti7\t4\t881250949\n", "u1::i7::4::881250949\n", "u1,i7,4\n"}) {
    const Outcome outcome = ReadAll(text);
    EXPECT_EQ(outcome.format, Format::kRatings) << text;
    EXPECT_THAT(outcome.rows, ElementsAre(Row{4.0f, {"u1", "i7"}})) << text;
  }
}

TEST(RatingsParserParse, SkipsAHeader) {
  const Outcome outcome = ReadAll("userId,movieId,rating,timestamp\n1,296,3.5,1147880044\n");
  EXPECT_EQ(outcome.format, Format::kRatings);
  EXPECT_THAT(outcome.rows, ElementsAre(Row{3.5f, {"1", "296"}}));
  EXPECT_EQ(outcome.bad_rows, 0);
}

TEST(RatingsParserParse, CountsWhatIsNoRating) {
  const Outcome outcome = ReadAll("1,2,3\n1,2\n1,2,x\n,2,3\n1,2,inf\n1,2,3,4,5\n");
  EXPECT_EQ(outcome.rows.size(), 1u);
  EXPECT_EQ(outcome.bad_rows, 5);
}

TEST(OpenFormat, SaysThatItCannotGuess) {
  const Outcome outcome = ReadAll("some text\nmore text\n");
  EXPECT_TRUE(absl::IsInvalidArgument(outcome.status));
  EXPECT_THAT(Message(outcome.status), HasSubstr("cannot guess the format"));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadAll("").status));
}

TEST(ParseLabel, AcceptsTheUsualSpellingsOfTwoClasses) {
  for (const char* text : {"1", "1.0", "+1", "1e0"}) {
    EXPECT_EQ(ParseLabel(text, LabelKind::kBinary).value_or(9.0f), 1.0f) << text;
  }
  for (const char* text : {"0", "0.0", "-1", "-0"}) {
    EXPECT_EQ(ParseLabel(text, LabelKind::kBinary).value_or(9.0f), 0.0f) << text;
  }
  for (const char* text : {"", "2", "yes", "nan", "inf", "1 ", "++1", "0x1", "1e99"}) {
    EXPECT_THAT(ParseLabel(text, LabelKind::kBinary), StatusIs(absl::StatusCode::kInvalidArgument))
        << text;
  }
}

// Damaged files are read to their end: every row is used or counted, none crashes.
TEST(RecordReaderNext, SurvivesTenThousandMutatedFiles) {
  const std::vector<std::pair<Format, std::string>> seeds = {
      {Format::kCsv, "label,a,b\n1,\"x,\"\"1\",y\n0,2,\"z\nz\"\n1,3,\n"},
      {Format::kCriteo,
       CriteoRow("1", "5", "68fd1e64") + CriteoRow("0", "", "") + CriteoRow("0", "-1", "ff")},
      {Format::kRatings, "1::296::3.5::1147880044\n2::7::4\n3::8::1\n"},
      {Format::kRatings, "userId,movieId,rating\n1,296,3.5\n2,7,4\n"}};
  const std::string alphabet = "\",\t:;\n\r0123456789.-eax\xFF\xEF" + std::string(1, '\0');
  constexpr std::uint64_t kSeed = 20240607;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  int read = 0;
  for (int round = 0; round < 10000; ++round) {
    auto [format, text] = seeds[random.Below(seeds.size())];
    for (std::uint64_t i = 1 + random.Below(8); i > 0 && !text.empty(); --i) {
      const std::size_t at = random.Below(text.size());
      const char c = alphabet[random.Below(alphabet.size())];
      switch (random.Below(4)) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.insert(at, 1, c);
          break;
        case 2:
          text.erase(at, 1 + random.Below(5));
          break;
        default:
          text.resize(at);
          break;
      }
    }
    ReadOptions options;
    if (round % 4 != 0) options.format = format;  // Else it is guessed.
    const Outcome outcome = ReadAll(text, options);
    for (const Row& row : outcome.rows) ASSERT_EQ(row.cells.size(), outcome.columns.size());
    if (outcome.status.ok()) ++read;
  }
  EXPECT_GT(read, 4000);
}

}  // namespace
}  // namespace embla::train
