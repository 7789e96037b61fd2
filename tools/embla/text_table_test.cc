#include "tools/embla/text_table.h"

#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace embla::cli {
namespace {

TEST(TextTable, NotesStandBelowTheirLineWithinAHundredColumns) {
  TextTable table({"name", ">rows"});
  table.Add({"clicks", "7"});
  std::string words;
  for (int i = 0; i < 30; ++i) words += "because ";
  table.AddNote(words);
  table.Add({"users", "8"});
  std::istringstream lines(table.Render("  "));
  std::vector<std::string> read;
  for (std::string line; std::getline(lines, line);) read.push_back(line);
  ASSERT_EQ(read.size(), 6u);
  EXPECT_EQ(read[1], "  clicks     7");
  EXPECT_EQ(read[2].substr(0, 13), "      because");
  EXPECT_EQ(read[5], "  users      8");
  for (const std::string& line : read) EXPECT_LE(line.size(), 100u) << line;
}

// The output of `embla job ls` for a job that failed.
TEST(TextTable, LongCellsGoOnBelowWithinAHundredColumns) {
  TextTable table({">job", "state", ">units", "note"});
  std::string words = "FAILED_PRECONDITION:";
  for (int i = 0; i < 30; ++i) words += " node" + std::to_string(i);
  table.Add({"1", "failed", "12", words});
  table.Add({"2", "done", "7", std::string(130, 'x')});
  std::istringstream lines(table.Render());
  std::vector<std::string> read;
  for (std::string line; std::getline(lines, line);) read.push_back(line);
  ASSERT_EQ(read.size(), 6u);
  EXPECT_EQ(read[1].substr(0, 47), "  1  failed     12  FAILED_PRECONDITION: node0 ");
  EXPECT_EQ(read[2].substr(0, 24), std::string(20, ' ') + "node");
  EXPECT_EQ(read[4].substr(0, 22), "  2  done        7  xx");
  for (const std::string& line : read) EXPECT_LE(line.size(), 100u) << line;
}

TEST(Shortened, SaysThatSomethingIsMissing) {
  EXPECT_EQ(Shortened("clicks", 6), "clicks");
  EXPECT_EQ(Shortened("user_clicks", 6), "user..");
}

TEST(TextTable, AlignsColumnsAndTrimsLines) {
  TextTable table({"name", ">rows", "note"});
  table.Add({"a", "1", ""});
  table.Add({"longer", "12,345", "x"});
  EXPECT_EQ(table.Render("  "),
            "  name      rows  note\n"
            "  a            1\n"
            "  longer  12,345  x\n");
}

TEST(FormatCount, GroupsThousands) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(1'600'000'000), "1,600,000,000");
  EXPECT_EQ(FormatCount(-123'456), "-123,456");
}

TEST(FormatBytes, KeepsThreeDigits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.00 KiB");
  EXPECT_EQ(FormatBytes(10 * 1024), "10.0 KiB");
  EXPECT_EQ(FormatBytes(1023 * 1024), "1023 KiB");
  EXPECT_EQ(FormatBytes((std::int64_t{1} << 20) - 1), "1.00 MiB");
  EXPECT_EQ(FormatBytes(std::int64_t{64} << 30), "64.0 GiB");
  EXPECT_EQ(FormatBytes(std::int64_t{1} << 62), "4096 PiB");
}

}  // namespace
}  // namespace embla::cli
