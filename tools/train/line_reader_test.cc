#include "tools/train/line_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <string>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "tools/train/random.h"
#include "tools/train/testing/temp_file.h"

namespace embla::train {
namespace {

using ::embla::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TempFile;

std::string Gzip(const std::string& text) {
  const TempFile file("");
  gzFile out = gzopen(file.path().c_str(), "wb");
  gzwrite(out, text.data(), text.size());
  gzclose(out);
  std::ifstream in(file.path(), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string Zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

absl::StatusOr<std::vector<std::string>> ReadLines(const std::string& content) {
  const TempFile file(content);
  auto reader = LineReader::Open(file.path());
  if (!reader.ok()) return reader.status();
  std::vector<std::string> lines;
  std::string_view line;
  while (true) {
    const auto more = (*reader)->Next(line);
    if (!more.ok()) return more.status();
    if (!*more) return lines;
    lines.emplace_back(line);
    EXPECT_EQ((*reader)->line_number(), static_cast<std::int64_t>(lines.size()));
  }
}

// Text that does not compress to nothing, some megabytes long.
std::string ManyLines() {
  Random random(7);
  std::string text;
  while (text.size() < 3 * kLineBytesMax) {
    text += std::to_string(random.Next());
    if (random.Below(4) == 0) text += '\n';
  }
  return text;
}

TEST(LineReaderNext, EndsLinesAtEitherLineBreakAndKeepsEmptyOnes) {
  const auto lines = ReadLines("a\r\n\nb\nc");
  ASSERT_THAT(lines, IsOk());
  EXPECT_THAT(*lines, ElementsAre("a", "", "b", "c"));
}

TEST(LineReaderNext, DropsTheByteOrderMark) {
  const auto lines = ReadLines("\xEF\xBB\xBFlabel\n");
  ASSERT_THAT(lines, IsOk());
  EXPECT_THAT(*lines, ElementsAre("label"));
}

TEST(LineReaderNext, FindsNothingInAnEmptyFile) {
  const auto lines = ReadLines("");
  ASSERT_THAT(lines, IsOk());
  EXPECT_THAT(*lines, IsEmpty());
}

TEST(LineReaderNext, ReadsGzipAndZstdLikePlainText) {
  const std::string text = ManyLines();
  const auto plain = ReadLines(text);
  const auto gzip = ReadLines(Gzip(text));
  const auto zstd = ReadLines(Zstd(text));
  ASSERT_THAT(plain, IsOk());
  ASSERT_THAT(gzip, IsOk());
  ASSERT_THAT(zstd, IsOk());
  EXPECT_GT(plain->size(), 10000u);
  EXPECT_EQ(*gzip, *plain);
  EXPECT_EQ(*zstd, *plain);
}

TEST(LineReaderNext, ReadsCompressedFilesThatWereAppendedToEachOther) {
  const auto gzip = ReadLines(Gzip("a\n") + Gzip("b\n"));
  const auto zstd = ReadLines(Zstd("a\n") + Zstd("b\n"));
  ASSERT_THAT(gzip, IsOk());
  ASSERT_THAT(zstd, IsOk());
  EXPECT_THAT(*gzip, ElementsAre("a", "b"));
  EXPECT_THAT(*zstd, ElementsAre("a", "b"));
}

TEST(LineReaderNext, CallsACompressedFileThatIsCutOffDamaged) {
  const std::string text = ManyLines();
  const std::string gzip = Gzip(text);
  const std::string zstd = Zstd(text);
  EXPECT_TRUE(absl::IsDataLoss(ReadLines(gzip.substr(0, gzip.size() / 2)).status()));
  EXPECT_TRUE(absl::IsDataLoss(ReadLines(zstd.substr(0, zstd.size() / 2)).status()));
}

TEST(LineReaderNext, RefusesLinesOfMoreThanOneMebibyte) {
  const std::string longest(kLineBytesMax, 'x');
  EXPECT_THAT(ReadLines(longest + "\n"), IsOk());
  const auto lines = ReadLines("a\n" + longest + "x\n");
  EXPECT_TRUE(absl::IsInvalidArgument(lines.status()));
  EXPECT_THAT(Message(lines.status()), HasSubstr(":2: line is longer"));
}

TEST(LineReaderOpen, NamesAFileThatDoesNotExist) {
  const auto reader = LineReader::Open("/nowhere/data.csv");
  EXPECT_TRUE(absl::IsNotFound(reader.status()));
  EXPECT_THAT(Message(reader.status()), HasSubstr("/nowhere/data.csv"));
}

}  // namespace
}  // namespace embla::train
