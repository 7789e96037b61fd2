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

// A record as it is stored at one place.
struct Stored {
  std::string bytes;
  explicit Stored(const LogRecordView& record, LogPayload payload, const RecordSeal& seal) {
    OutgoingRecord outgoing(record, std::move(payload));
    outgoing.Seal(seal);
    std::vector<std::string_view> pieces;
    outgoing.AddPieces(&pieces);
    for (const std::string_view piece : pieces) bytes += piece;
    EXPECT_EQ(bytes.size(), outgoing.bytes());
  }
};

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
    bytes += Stored({.type = type, .kind = 9}, payload,
                    {SegmentSeed(kHeader), bytes.size(), LogLsn{lsn},
                     LogLsn{durable_end == 0 ? lsn : durable_end}})
                 .bytes;
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

TEST(LogFormat, ViewsAreStoredLikeTheSameBytesInOnePiece) {
  std::mt19937_64 random(8);
  for (int i = 0; i < 300; ++i) {
    const std::string content = RandomPayload(random, 3000);
    // Up to three views, which may touch each other and the ends.
    std::vector<std::size_t> cuts(6);
    for (std::size_t& cut : cuts) cut = random() % (content.size() + 1);
    std::sort(cuts.begin(), cuts.end());
    std::string own(kRecordHeaderBytes, '\0');
    std::vector<LogPayload::View> views;
    std::size_t at = 0;
    for (std::size_t v = 0; v < 6; v += 2) {
      own += content.substr(at, cuts[v] - at);
      views.push_back(
          {own.size(), std::string_view(content).substr(cuts[v], cuts[v + 1] - cuts[v])});
      at = cuts[v + 1];
    }
    own += content.substr(at);
    const RecordSeal seal{7, 8 * (random() % 200), LogLsn{3}, LogLsn{2}};
    const LogPayload payload = LogPayload::Behind(own, views);
    ASSERT_EQ(payload.size(), content.size());
    ASSERT_EQ(payload.content(), content);
    ASSERT_EQ(Stored({.kind = 9}, payload, seal).bytes, Stored({.kind = 9}, content, seal).bytes);
  }
}

TEST(LogFormat, ARecordMayBeSealedForAnotherPlace) {
  const std::string payload(2000, '\0');
  const RecordSeal seal{1, 512, LogLsn{3}, LogLsn{2}};
  OutgoingRecord twice({}, payload);
  twice.Seal({2, 104, LogLsn{9}, LogLsn{9}});
  twice.Seal(seal);
  std::vector<std::string_view> pieces;
  twice.AddPieces(&pieces);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces.front(), Stored({}, payload, seal).bytes);
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

// Whether it is lost or not, a sector of zeros is there.
TEST(LogFormat, SectorsOfTheLastRecordThatNeverReachedTheDiskAreATornTail) {
  const Segment segment = LongSegment();
  const std::size_t begin = segment.ends[1];
  for (std::size_t from = begin; from < segment.bytes.size(); from = (from / 512 + 1) * 512) {
    std::string torn = segment.bytes;
    const std::size_t end = std::min((from / 512 + 1) * 512, torn.size());
    torn.replace(from, end - from, end - from, '\0');
    if (torn == segment.bytes) continue;
    const auto scan = Scan(torn);
    ASSERT_THAT(scan, IsOk()) << from;
    ASSERT_EQ(scan->valid_bytes, begin);
  }
}

// Zeros at every place around the borders of sectors, and the other bytes flipped or lost.
TEST(LogFormat, ZerosOfAPayloadDoNotPassForWhatWasNeverWritten) {
  for (std::size_t before = 0; before <= 512; before += 8) {
    for (const std::size_t zeros : {8, 504, 512, 520, 1024, 1500}) {
      for (const std::size_t after : {0, 1, 8, 600}) {
        Segment segment;
        segment.Add(std::string(before, 'x') + std::string(zeros, '\0') + std::string(after, 'y'));
        for (std::size_t at : {std::size_t{0}, before + zeros / 2, before + zeros + after - 1}) {
          std::string flipped = segment.bytes;
          char& byte = flipped[kSegmentHeaderBytes + kRecordHeaderBytes + at];
          byte = static_cast<char>(byte ^ 0x03);
          ASSERT_EQ(Scan(flipped).status().code(), absl::StatusCode::kDataLoss)
              << before << " " << zeros << " " << after << " " << at;
        }
        for (std::size_t from = kSegmentHeaderBytes; from < segment.bytes.size();
             from = (from / 512 + 1) * 512) {
          std::string torn = segment.bytes;
          const std::size_t end = std::min((from / 512 + 1) * 512, torn.size());
          torn.replace(from, end - from, end - from, '\0');
          const bool is_whole = torn == segment.bytes;
          const auto scan = Scan(torn);
          ASSERT_THAT(scan, IsOk()) << before << " " << zeros << " " << after << " " << from;
          ASSERT_EQ(scan->records, is_whole ? 1u : 0u);
        }
      }
    }
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
  const Stored record({}, "other",
                      {SegmentSeed(kHeader) + 1, segment.bytes.size(), LogLsn{5}, LogLsn{5}});
  EXPECT_EQ(Scan(segment.bytes + record.bytes).status().code(), absl::StatusCode::kDataLoss);
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

TEST(LogFormat, ASegmentOfAnotherFormatIsRefusedByName) {
  const auto old = ReadFile("tests/golden/node_log_v1.bin");
  ASSERT_THAT(old, IsOk());
  const absl::Status status = Scan(*old).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("dir/log is a log segment of format 1, this program reads"));
}

// The worked example of docs/node_log.md, written by another program.
TEST(LogFormat, TheGoldenFileIsWhatIsWrittenAndRead) {
  const auto golden = ReadFile("tests/golden/node_log_v2.bin");
  ASSERT_THAT(golden, IsOk());
  const SegmentHeader header{.log_id = 0x0102030405060708, .number = 1, .first_lsn = LogLsn{1}};
  std::string bytes = EncodeSegmentHeader(header);
  const auto add = [&](std::uint64_t lsn, std::uint64_t durable_end, const LogRecordView& view) {
    bytes += Stored(view, view.payload,
                    {SegmentSeed(header), bytes.size(), LogLsn{lsn}, LogLsn{durable_end}})
                 .bytes;
  };
  add(1, 1, {.type = LogRecordType::kControl, .kind = 7, .payload = "freeze"});
  add(2, 1, {.level = Durability::kWritten, .payload = std::string(864, '\0') + "rows"});
  add(4, 3, {.type = LogRecordType::kMark, .payload = EncodeMark(LogLsn{2})});
  EXPECT_EQ(*golden, bytes);
  EXPECT_EQ(Scan(*golden)->records, 3u);
  EXPECT_EQ(Scan(*golden)->keep_from, LogLsn{2});
}

}  // namespace
}  // namespace embla
