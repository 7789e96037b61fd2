#include "server/state_store/state_format.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;

std::vector<StateWrite> Writes(int i) {
  return {{"plan/head", "{\"version\":" + std::to_string(i) + "}"}, {"gone", std::nullopt}};
}

// A log, and where each of its frames ends.
struct Log {
  std::string bytes = EncodeStateLogHeader();
  std::vector<std::size_t> ends = {bytes.size()};

  void Add(const std::vector<StateWrite>& writes) {
    bytes += EncodeStateFrame(Revision{ends.size()}, writes);
    ends.push_back(bytes.size());
  }
};

Log SmallLog() {
  Log log;
  for (int i = 0; i < 3; ++i) log.Add(Writes(i));
  return log;
}

// A log whose last frame spreads over several sectors.
Log LongLog(const std::string& value = std::string(3000, 'v')) {
  Log log;
  log.Add(Writes(0));
  log.Add({{"big", value}});
  return log;
}

TEST(StateLogFormat, RoundTrips) {
  const auto content = DecodeStateLog(SmallLog().bytes, "log");
  ASSERT_THAT(content, IsOk());
  ASSERT_EQ(content->frames.size(), 3u);
  EXPECT_EQ(content->frames[2].revision, Revision{3});
  EXPECT_EQ(content->frames[2].writes[0].value, "{\"version\":2}");
  EXPECT_EQ(content->frames[2].writes[1].value, std::nullopt);
  EXPECT_EQ(content->valid_bytes, SmallLog().bytes.size());
}

TEST(StateLogFormat, ACutAtAnyByteKeepsTheWholeFramesBeforeIt) {
  const Log log = SmallLog();
  for (std::size_t cut = log.ends.front(); cut <= log.bytes.size(); ++cut) {
    const auto content = DecodeStateLog(log.bytes.substr(0, cut), "log");
    ASSERT_THAT(content, IsOk()) << cut;
    std::size_t whole = 0;
    while (whole + 1 < log.ends.size() && log.ends[whole + 1] <= cut) ++whole;
    ASSERT_EQ(content->frames.size(), whole) << cut;
    ASSERT_EQ(content->valid_bytes, log.ends[whole]) << cut;
  }
}

TEST(StateLogFormat, AFlipOfAnyBitIsCorruptionWithFileAndOffset) {
  const Log log = SmallLog();
  for (std::size_t byte = 0; byte < log.bytes.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = log.bytes;
      flipped[byte] = static_cast<char>(flipped[byte] ^ (1 << bit));
      const absl::Status status = DecodeStateLog(flipped, "dir/log").status();
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << byte << "." << bit;
      std::size_t frame = 0;
      while (byte >= log.ends[frame]) ++frame;
      const std::size_t offset = frame == 0 ? 0 : log.ends[frame - 1];
      ASSERT_THAT(std::string(status.message()),
                  HasSubstr("dir/log is corrupt at offset " + std::to_string(offset) + ":"));
    }
  }
}

TEST(StateLogFormat, SectorsOfTheLastFrameThatNeverReachedTheDiskAreATornTail) {
  const Log log = LongLog();
  const std::size_t begin = log.ends[1];
  for (std::size_t from = begin; from < log.bytes.size(); from = (from / 512 + 1) * 512) {
    for (std::size_t to = (from / 512 + 1) * 512;; to += 512) {
      std::string torn = log.bytes;
      const std::size_t end = std::min(to, torn.size());
      torn.replace(from, end - from, end - from, '\0');
      const auto content = DecodeStateLog(torn, "log");
      ASSERT_THAT(content, IsOk()) << from << "-" << end;
      ASSERT_EQ(content->valid_bytes, begin);
      if (end == torn.size()) break;
    }
  }
}

TEST(StateLogFormat, AFlipInTheLongLastFrameIsNotATornTail) {
  const Log log = LongLog();
  for (std::size_t byte = log.ends[1]; byte < log.bytes.size(); ++byte) {
    std::string flipped = log.bytes;
    flipped[byte] = static_cast<char>(flipped[byte] ^ 4);
    ASSERT_EQ(DecodeStateLog(flipped, "log").status().code(), absl::StatusCode::kDataLoss) << byte;
  }
}

TEST(StateLogFormat, ZeroedSectorsBeforeALaterFrameAreCorruption) {
  Log log = LongLog();
  log.Add(Writes(9));
  for (const std::size_t from : {log.ends[1], std::size_t{512}, std::size_t{1024}}) {
    std::string damaged = log.bytes;
    damaged.replace(from, 512, 512, '\0');
    EXPECT_EQ(DecodeStateLog(damaged, "log").status().code(), absl::StatusCode::kDataLoss) << from;
  }
}

StateSnapshot ExampleSnapshot() {
  return {Revision{9}, {{"a", "1", Revision{4}}, {"b", "", Revision{9}}}};
}

TEST(StateSnapshotFormat, RoundTrips) {
  const auto snapshot = DecodeStateSnapshot(EncodeStateSnapshot(ExampleSnapshot()), "snapshot");
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_EQ(snapshot->revision, Revision{9});
  EXPECT_EQ(snapshot->entries, ExampleSnapshot().entries);
}

TEST(StateSnapshotFormat, AnyCutOrFlipIsCorruption) {
  const std::string bytes = EncodeStateSnapshot(ExampleSnapshot());
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    EXPECT_EQ(DecodeStateSnapshot(bytes.substr(0, at), "s").status().code(),
              absl::StatusCode::kDataLoss);
    std::string flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    EXPECT_EQ(DecodeStateSnapshot(flipped, "s").status().code(), absl::StatusCode::kDataLoss);
  }
}

// The worked examples of docs/state_store_format.md, written by another program.
TEST(StateFormat, GoldenFilesAreWhatIsWrittenAndRead) {
  const auto log = ReadFile("tests/golden/state_log_v1.bin");
  const auto snapshot = ReadFile("tests/golden/state_snapshot_v1.bin");
  ASSERT_THAT(log, IsOk());
  ASSERT_THAT(snapshot, IsOk());
  const std::vector<StateWrite> first = {{"a", "1"}};
  const std::vector<StateWrite> second = {{"b", "two"}, {"a", std::nullopt}};
  EXPECT_EQ(*log, EncodeStateLogHeader() + EncodeStateFrame(Revision{1}, first) +
                      EncodeStateFrame(Revision{2}, second));
  EXPECT_EQ(*snapshot, EncodeStateSnapshot({Revision{2}, {{"b", "two", Revision{2}}}}));
  EXPECT_EQ(DecodeStateLog(*log, "log")->frames.size(), 2u);
  EXPECT_EQ(DecodeStateSnapshot(*snapshot, "snapshot")->revision, Revision{2});
}

}  // namespace
}  // namespace embla
