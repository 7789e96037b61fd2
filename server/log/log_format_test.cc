#include "server/log/log_format.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/log/testing/log_model.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;

constexpr SegmentHeader kHeader{.log_id = 0x1122334455667788,
                                .number = 3,
                                .first_lsn = LogLsn{5},
                                .previous_bytes = 4000,
                                .previous_crc = 0xcafe};

struct Read {
  LogLsn lsn;
  LogRecordType type;
  std::uint16_t kind;
  std::string payload;
  bool operator==(const Read&) const = default;
};

// A segment as it is written, and where each of its records ends.
struct Segment {
  std::string bytes = EncodeSegmentHeader(kHeader);
  std::vector<std::size_t> ends = {bytes.size()};
  std::vector<Read> records;

  // durable_end 0: all records before this one are synced.
  void Add(std::string payload, LogRecordType type = LogRecordType::kUpdate,
           std::uint64_t durable_end = 0) {
    const auto lsn = static_cast<std::uint64_t>(kHeader.first_lsn) + records.size();
    std::string record = EncodeRecord({.type = type, .kind = 9}, payload);
    SealLogRecord({SegmentSeed(kHeader), LogLsn{lsn}, LogLsn{durable_end == 0 ? lsn : durable_end}},
                  record);
    bytes += record;
    ends.push_back(bytes.size());
    records.push_back({LogLsn{lsn}, type, 9, std::move(payload)});
  }
};

absl::StatusOr<SegmentScan> Scan(const std::string& bytes, bool newest = true,
                                 std::vector<Read>* records = nullptr) {
  return ScanSegment(bytes, "dir/log", newest, [&](const LogRecordView& view) {
    if (records != nullptr) {
      records->push_back({view.lsn, view.type, view.kind, std::string(view.payload)});
    }
    return absl::OkStatus();
  });
}

Segment SmallSegment() {
  Segment segment;
  segment.Add("first");
  segment.Add("", LogRecordType::kControl);
  segment.Add(std::string(30, '\0'));
  return segment;
}

// The last record spreads over sectors, whole ones of zeros among them.
Segment LongSegment() {
  Segment segment;
  segment.Add("first");
  segment.Add(std::string(3000, '\0') + "end");
  return segment;
}

TEST(LogFormat, RoundTripsAnyPayload) {
  std::mt19937_64 random(7);
  Segment segment;
  for (int i = 0; i < 300; ++i) segment.Add(RandomPayload(random, 200));
  std::vector<Read> records;
  const auto scan = Scan(segment.bytes, true, &records);
  ASSERT_THAT(scan, IsOk());
  EXPECT_EQ(records, segment.records);
  EXPECT_EQ(scan->records, 300u);
  EXPECT_EQ(scan->next_lsn, LogLsn{305});
  EXPECT_EQ(scan->valid_bytes, segment.bytes.size());
}

TEST(LogFormat, NoWordOfARecordIsZero) {
  std::mt19937_64 random(8);
  for (int i = 0; i < 300; ++i) {
    Segment segment;
    segment.Add(RandomPayload(random, 200));
    for (std::size_t at = kSegmentHeaderBytes; at < segment.bytes.size(); at += 8) {
      ASSERT_NE(segment.bytes.substr(at, 8), std::string(8, '\0')) << at;
    }
  }
}

TEST(LogFormat, AWordThatIsTakenForZeroElsewhereIsKept) {
  const std::string plain = EncodeRecord({}, std::string(16, '\0'));
  const std::string word = plain.substr(kRecordHeaderBytes, 8);
  Segment segment;
  segment.Add(word + std::string(8, '\0'));
  segment.Add(std::string(8, '\0') + word);
  // Far behind zeros for which it would stand.
  segment.Add(std::string(10000, '\0') + word + std::string(5000, '\0') + word);
  std::vector<Read> records;
  ASSERT_THAT(Scan(segment.bytes, true, &records), IsOk());
  EXPECT_EQ(records, segment.records);
}

TEST(LogFormat, ACutAtAnyByteKeepsTheWholeRecordsBeforeItInTheNewestSegmentOnly) {
  const Segment segment = SmallSegment();
  for (std::size_t cut = segment.ends.front(); cut < segment.bytes.size(); ++cut) {
    const auto scan = Scan(segment.bytes.substr(0, cut));
    ASSERT_THAT(scan, IsOk()) << cut;
    std::size_t whole = 0;
    while (segment.ends[whole + 1] <= cut) ++whole;
    ASSERT_EQ(scan->records, whole) << cut;
    ASSERT_EQ(scan->valid_bytes, segment.ends[whole]) << cut;
    if (cut == segment.ends[whole]) continue;
    ASSERT_EQ(Scan(segment.bytes.substr(0, cut), false).status().code(),
              absl::StatusCode::kDataLoss);
  }
}

TEST(LogFormat, AFlipOfAnyBitIsCorruptionWithFileAndOffset) {
  for (const Segment& segment : {SmallSegment(), LongSegment()}) {
    for (std::size_t byte = 0; byte < segment.bytes.size(); ++byte) {
      std::string flipped = segment.bytes;
      flipped[byte] = static_cast<char>(flipped[byte] ^ (1 << byte % 8));
      const absl::Status status = Scan(flipped).status();
      std::size_t record = 0;
      while (byte >= segment.ends[record]) ++record;
      const std::size_t offset = record == 0 ? 0 : segment.ends[record - 1];
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << byte;
      ASSERT_THAT(std::string(status.message()),
                  HasSubstr("dir/log is corrupt at offset " + std::to_string(offset) + ":"));
    }
  }
}

TEST(LogFormat, SectorsOfTheLastRecordThatNeverReachedTheDiskAreATornTail) {
  const Segment segment = LongSegment();
  const std::size_t begin = segment.ends[1];
  for (std::size_t from = begin; from < segment.bytes.size(); from = (from / 512 + 1) * 512) {
    std::string torn = segment.bytes;
    const std::size_t end = std::min((from / 512 + 1) * 512, torn.size());
    torn.replace(from, end - from, end - from, '\0');
    const auto scan = Scan(torn);
    ASSERT_THAT(scan, IsOk()) << from;
    ASSERT_EQ(scan->valid_bytes, begin);
  }
}

// Two records between syncs: the disk may have the later one without the earlier one.
TEST(LogFormat, ALostRecordBeforeAnIntactOneIsATornTailIfNeitherWasSynced) {
  Segment segment;
  segment.Add("first");
  segment.Add(std::string(1000, 'x'));
  const std::size_t begin = segment.ends[1];
  segment.Add("later", LogRecordType::kUpdate, 6);
  segment.bytes.replace(512, 512, 512, '\0');
  const auto scan = Scan(segment.bytes);
  ASSERT_THAT(scan, IsOk());
  EXPECT_EQ(scan->valid_bytes, begin);
}

TEST(LogFormat, ALostRecordThatALaterOneKnewAsSyncedIsCorruption) {
  Segment segment;
  segment.Add("first");
  segment.Add(std::string(1000, 'x'));
  segment.Add("later", LogRecordType::kUpdate, 7);
  segment.bytes.replace(512, 512, 512, '\0');
  const absl::Status status = Scan(segment.bytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("says it was synced"));
}

TEST(LogFormat, ARecordOfAnotherSegmentIsNotTakenForOneOfThis) {
  Segment segment;
  std::string record = EncodeRecord({}, "other");
  SealLogRecord({SegmentSeed(kHeader) + 1, LogLsn{5}, LogLsn{5}}, record);
  EXPECT_EQ(Scan(segment.bytes + record).status().code(), absl::StatusCode::kDataLoss);
}

TEST(LogFormat, LsnsThatDoNotRiseAreCorruption) {
  Segment segment;
  segment.Add("a");
  const std::string twice = segment.bytes + segment.bytes.substr(kSegmentHeaderBytes);
  EXPECT_EQ(Scan(twice).status().code(), absl::StatusCode::kDataLoss);
}

TEST(LogFormat, AnErrorOfTheVisitorIsReturned) {
  const auto scan = ScanSegment(SmallSegment().bytes, "log", true, [](const LogRecordView&) {
    return absl::CancelledError("enough");
  });
  EXPECT_EQ(scan.status().code(), absl::StatusCode::kCancelled);
}

// Mutated bytes never crash the scan, and its valid prefix is valid again when cut there.
TEST(LogFormat, MutatedSegmentsAreReadOrRefused) {
  const Segment segment = LongSegment();
  std::mt19937_64 random(11);
  for (int i = 0; i < 20'000; ++i) {
    std::string mutated = segment.bytes;
    for (std::uint64_t n = 1 + random() % 4; n > 0; --n) {
      const std::size_t at = random() % mutated.size();
      const std::size_t size = std::min<std::size_t>(mutated.size() - at, 1 + random() % 600);
      switch (random() % 4) {
        case 0:
          mutated[at] = static_cast<char>(random());
          break;
        case 1:
          mutated.replace(at, size, size, '\0');
          break;
        case 2:
          mutated.resize(std::max(at, std::size_t{1}));
          break;
        default:
          mutated.insert(at, mutated.substr(random() % mutated.size(), size));
          break;
      }
    }
    const auto scan = Scan(mutated);
    if (!scan.ok()) {
      ASSERT_EQ(scan.status().code(), absl::StatusCode::kDataLoss);
      continue;
    }
    const auto again = Scan(mutated.substr(0, scan->valid_bytes), false);
    ASSERT_THAT(again, IsOk());
    ASSERT_EQ(again->records, scan->records);
  }
}

// The worked example of docs/node_log.md, written by another program.
TEST(LogFormat, TheGoldenFileIsWhatIsWrittenAndRead) {
  const auto golden = ReadFile("tests/golden/node_log_v1.bin");
  ASSERT_THAT(golden, IsOk());
  const SegmentHeader header{.log_id = 0x0102030405060708, .number = 1, .first_lsn = LogLsn{1}};
  std::string bytes = EncodeSegmentHeader(header);
  const auto add = [&](std::uint64_t lsn, std::uint64_t durable_end, const LogRecordView& view) {
    std::string record = EncodeRecord(view, view.payload);
    SealLogRecord({SegmentSeed(header), LogLsn{lsn}, LogLsn{durable_end}}, record);
    bytes += record;
  };
  add(1, 1, {.type = LogRecordType::kControl, .kind = 7, .payload = "freeze"});
  add(2, 1, {.level = Durability::kWritten, .payload = std::string(8, '\0') + "rows"});
  add(4, 3, {.type = LogRecordType::kMark, .payload = EncodeMark(LogLsn{2})});
  EXPECT_EQ(*golden, bytes);
  EXPECT_EQ(Scan(*golden)->records, 3u);
  EXPECT_EQ(Scan(*golden)->keep_from, LogLsn{2});
}

}  // namespace
}  // namespace embla
