#include "core/wire/frame.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/wire/random_request.h"
#include "core/wire/request_invariants.h"
#include "embla/v1/data.pb.h"

namespace embla::wire {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::IsOkAndHolds;
using ::embla::testing::StatusIs;
using ::embla::testing::TestSeed;
using ::embla::testing::TestSeeds;
using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t kTextBytesMax = 64 << 10;

struct ReceivedArray {
  std::uint32_t number = 0;
  std::string bytes;
  bool is_dropped = false;
  std::size_t filled = 0;
};

struct ReceivedFrame {
  std::string text;
  std::vector<ReceivedArray> arrays;
};

// Keeps the frames that come, and checks what a reader promises its sink.
class Collector final : public FrameReader::Sink {
 public:
  // Drops arrays of more than kArrayBytesMax bytes, and `dropped_percent` of all others.
  Collector(RandomRequest& random, int dropped_percent)
      : random_(random), dropped_percent_(dropped_percent) {}

  const std::vector<ReceivedFrame>& frames() const { return frames_; }
  bool is_in_frame() const { return is_in_frame_; }
  // Results of BeginFrame and EndFrame.
  absl::Status begin_status;
  absl::Status end_status;
  std::size_t text_bytes_max = kTextBytesMax;

  absl::Status BeginFrame(std::string_view text, std::span<const FrameArray> arrays,
                          std::span<std::byte*> places) override {
    EXPECT_FALSE(is_in_frame_);
    EXPECT_LE(text.size(), text_bytes_max);
    EXPECT_LE(arrays.size(), kFrameArraysMax);
    EXPECT_EQ(places.size(), arrays.size());
    is_in_frame_ = true;
    frame_ = {.text = std::string(text), .arrays = std::vector<ReceivedArray>(arrays.size())};
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      EXPECT_EQ(places[i], nullptr);
      ReceivedArray& array = frame_.arrays[i];
      array.number = arrays[i].number;
      array.is_dropped = arrays[i].bytes > kArrayBytesMax || random_.Chance(dropped_percent_);
      if (array.is_dropped) continue;
      array.bytes.resize(arrays[i].bytes);
      places[i] = reinterpret_cast<std::byte*>(array.bytes.data());
    }
    return begin_status;
  }

  void Filled(std::size_t array, std::size_t filled) override {
    EXPECT_TRUE(is_in_frame_);
    ASSERT_LT(array, frame_.arrays.size());
    EXPECT_FALSE(frame_.arrays[array].is_dropped);
    EXPECT_GT(filled, frame_.arrays[array].filled);
    EXPECT_LE(filled, frame_.arrays[array].bytes.size());
    frame_.arrays[array].filled = filled;
  }

  absl::Status EndFrame() override {
    EXPECT_TRUE(is_in_frame_);
    is_in_frame_ = false;
    for (const ReceivedArray& array : frame_.arrays) EXPECT_EQ(array.filled, array.bytes.size());
    frames_.push_back(std::move(frame_));
    return end_status;
  }

 private:
  static constexpr std::size_t kArrayBytesMax = 100'000;

  RandomRequest& random_;  // Not owned; outlives this object.
  const int dropped_percent_;
  bool is_in_frame_ = false;
  ReceivedFrame frame_;
  std::vector<ReceivedFrame> frames_;
};

std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Feeds `bytes` in random pieces, where they belong or by Take. `after` is told after each piece
// how many bytes are gone.
absl::Status FeedInPieces(std::string_view bytes, RandomRequest& random, FrameReader& reader,
                          const std::function<void(std::size_t)>& after) {
  std::size_t position = 0;
  while (position < bytes.size()) {
    const std::string_view piece =
        bytes.substr(position, 1 + random.Below(std::uint64_t{1} << random.Below(18)));
    std::size_t count = 0;
    if (const auto place = reader.Place(); !place.empty() && random.Chance(50)) {
      count = std::min(piece.size(), place.size());
      std::memcpy(place.data(), piece.data(), count);
      EMBLA_RETURN_IF_ERROR(reader.Placed(count));
    } else {
      EMBLA_ASSIGN_OR_RETURN(count, reader.Take(AsBytes(piece)));
      EXPECT_GT(count, 0u);
      EXPECT_LE(count, piece.size());
      if (count == 0 || count > piece.size()) return absl::InternalError("no progress");
    }
    position += count;
    after(position);
  }
  return absl::OkStatus();
}

// A message with random large fields, and its text as generated code knows it.
struct RandomMessage {
  v1::StreamRequest text;
  SplitMessage split;
};

std::vector<LargeField> RandomFields(RandomRequest& random) {
  std::vector<LargeField> fields;
  for (std::uint64_t count = random.Below(kFrameArraysMax + 1); count > 0; --count) {
    const std::uint64_t bound = std::min<std::uint64_t>(100'001, 1 << random.Below(18));
    const int number = static_cast<int>(1 + random.Below(1000));
    const std::string bytes = random.Bytes(random.Below(bound));
    // Most fields are one piece; some of the pieces are empty.
    const std::uint64_t pieces = random.Chance(70) ? 1 : 1 + random.Below(20);
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      const std::size_t begin = bytes.size() * piece / pieces;
      const std::size_t end = bytes.size() * (piece + 1) / pieces;
      fields.emplace_back(number, grpc::Slice(bytes.substr(begin, end - begin)));
    }
  }
  return fields;
}

RandomMessage MakeRandomMessage(RandomRequest& random) {
  const v1::StreamRequest stream = random.Stream();
  RandomMessage message{.text = stream, .split = SplitOf(stream)};
  message.split.fields = RandomFields(random);
  if (message.text.has_lookup()) {
    message.text.mutable_lookup()->clear_ids();
    message.text.mutable_lookup()->clear_lengths();
    message.text.mutable_lookup()->clear_weights();
  } else {
    message.text.mutable_update()->clear_ids();
    message.text.mutable_update()->clear_lengths();
    message.text.mutable_update()->clear_weights();
    message.text.mutable_update()->clear_row_sum_squares();
    message.text.mutable_update()->clear_gradients();
  }
  if (random.Chance(10)) {
    message.text.clear_call();
    message.split = {
        .envelope = message.text.SerializeAsString(), .small = {}, .fields = message.split.fields};
  }
  return message;
}

void ExpectIs(const ReceivedFrame& received, const RandomMessage& message) {
  v1::StreamRequest text;
  ASSERT_TRUE(text.ParseFromString(received.text));
  EXPECT_TRUE(MessageDifferencer::Equals(text, message.text)) << message.text.ShortDebugString();
  std::vector<std::pair<int, std::string>> fields;
  int last = 0;
  for (const LargeField& piece : message.split.fields) {
    if (piece.number != last) fields.emplace_back(piece.number, "");
    last = piece.number;
    fields.back().second.append(reinterpret_cast<const char*>(piece.slice.begin()),
                                piece.slice.size());
  }
  std::erase_if(fields, [](const auto& field) { return field.second.empty(); });
  ASSERT_EQ(received.arrays.size(), fields.size());
  for (std::size_t i = 0; i < fields.size(); ++i) {
    EXPECT_EQ(received.arrays[i].number, static_cast<std::uint32_t>(fields[i].first));
    if (received.arrays[i].is_dropped) continue;
    EXPECT_TRUE(received.arrays[i].bytes == fields[i].second)
        << "array " << i << " of " << fields[i].second.size() << " bytes";
  }
}

template <typename T>
void Append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// The first bytes of a frame: what comes, and the arrays' entries, numbered from 1.
std::string HeadOf(std::uint32_t text_bytes, const std::vector<std::uint32_t>& array_bytes) {
  std::string head;
  Append(head, text_bytes);
  Append(head, static_cast<std::uint32_t>(array_bytes.size()));
  std::uint32_t number = 0;
  for (const std::uint32_t bytes : array_bytes) {
    Append(head, ++number);
    Append(head, bytes);
  }
  return head;
}

TEST(FrameMake, WritesTheBytesOfTheGrammar) {
  const SplitMessage message{.envelope = "\x08\x05",
                             .number = 2,
                             .small = "\x08\x03\x10\x01",
                             .fields = {{5, grpc::Slice(std::string("idsids"))},
                                        {6, grpc::Slice()},
                                        {7, grpc::Slice(std::string("w"))}}};
  const Frame frame = MakeFrame(message);
  const std::string expected(
      "\x08\x00\x00\x00\x02\x00\x00\x00"
      "\x05\x00\x00\x00\x06\x00\x00\x00\x07\x00\x00\x00\x01\x00\x00\x00"
      "\x08\x05\x12\x04\x08\x03\x10\x01"
      "idsidsw",
      39);
  EXPECT_EQ(BytesOf(frame), expected);
  EXPECT_EQ(frame.bytes(), expected.size());
}

TEST(FrameMake, ATextAloneIsAFrame) {
  EXPECT_EQ(BytesOf(MakeFrame("hi")), std::string("\x02\x00\x00\x00\x00\x00\x00\x00hi", 10));
  EXPECT_EQ(BytesOf(MakeFrame("")), std::string(8, '\0'));
}

TEST(FrameMake, SharesTheArrays) {
  const grpc::Slice rows(std::string(100'000, 'x'));
  SplitMessage message;
  message.fields.emplace_back(2, rows);
  const Frame frame = MakeFrame(message);
  ASSERT_EQ(frame.pieces.size(), 1u);
  EXPECT_EQ(frame.pieces[0].begin(), rows.begin());
}

TEST(FrameReaderTake, FramesInAnyPiecesAreTheirMessages) {
  const std::uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  RandomRequest random(seed);
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE(round);
    Collector collector(random, static_cast<int>(random.Below(3) * 30));
    FrameReader reader(collector, kTextBytesMax);
    std::string bytes;
    std::set<std::size_t> ends;
    std::vector<RandomMessage> messages;
    for (std::uint64_t frames = 1 + random.Below(4); frames > 0; --frames) {
      messages.push_back(MakeRandomMessage(random));
      bytes += BytesOf(MakeFrame(messages.back().split));
      ends.insert(bytes.size());
    }
    EXPECT_TRUE(reader.is_between_frames());

    const absl::Status fed = FeedInPieces(bytes, random, reader, [&](std::size_t position) {
      const auto ended = std::distance(ends.begin(), ends.upper_bound(position));
      EXPECT_EQ(collector.frames().size(), static_cast<std::size_t>(ended));
      EXPECT_EQ(reader.is_between_frames(), ends.contains(position));
    });

    ASSERT_THAT(fed, IsOk());
    ASSERT_EQ(collector.frames().size(), messages.size());
    for (std::size_t i = 0; i < messages.size(); ++i) {
      ExpectIs(collector.frames()[i], messages[i]);
    }
  }
}

TEST(FrameReaderTake, StopsAtTheEndOfAFrame) {
  const std::uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  RandomRequest random(seed);
  Collector collector(random, 30);
  FrameReader reader(collector, kTextBytesMax);
  std::string bytes;
  std::vector<std::size_t> sizes;
  for (int i = 0; i < 20; ++i) {
    const Frame frame = i % 5 == 4 ? MakeFrame("") : MakeFrame(MakeRandomMessage(random).split);
    bytes += BytesOf(frame);
    sizes.push_back(frame.bytes());
  }
  std::string_view left = bytes;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_THAT(reader.Take(AsBytes(left)), IsOkAndHolds(sizes[i]));
    EXPECT_EQ(collector.frames().size(), i + 1);
    left.remove_prefix(sizes[i]);
  }
  EXPECT_THAT(left, IsEmpty());
}

TEST(FrameReaderTake, ArraysMayBeEmpty) {
  RandomRequest random(1);
  Collector collector(random, 0);
  FrameReader reader(collector, kTextBytesMax);
  const std::string some = HeadOf(2, {0, 3, 0, 0, 1, 0}) + "hiabcd";
  const std::string none = HeadOf(0, {0, 0});

  EXPECT_THAT(reader.Take(AsBytes(some)), IsOkAndHolds(some.size()));
  EXPECT_THAT(reader.Take(AsBytes(none)), IsOkAndHolds(none.size()));

  ASSERT_EQ(collector.frames().size(), 2u);
  EXPECT_EQ(collector.frames()[0].text, "hi");
  const char* const expected[] = {"", "abc", "", "", "d", ""};
  ASSERT_EQ(collector.frames()[0].arrays.size(), std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    EXPECT_EQ(collector.frames()[0].arrays[i].bytes, expected[i]);
  }
  EXPECT_EQ(collector.frames()[1].arrays.size(), 2u);
}

TEST(FrameReaderPlace, IsTheRestOfAnArray) {
  RandomRequest random(1);
  Collector collector(random, 0);
  FrameReader reader(collector, kTextBytesMax);
  EXPECT_THAT(reader.Place(), IsEmpty());
  ASSERT_THAT(reader.Take(AsBytes(HeadOf(0, {0, 10, 4}) + "abc")), IsOk());
  EXPECT_EQ(reader.Place().size(), 7u);
  std::memcpy(reader.Place().data(), "de", 2);
  ASSERT_THAT(reader.Placed(2), IsOk());
  EXPECT_EQ(reader.Place().size(), 5u);
  ASSERT_THAT(reader.Take(AsBytes("fghij")), IsOkAndHolds(5u));
  EXPECT_EQ(reader.Place().size(), 4u);
  std::memcpy(reader.Place().data(), "wxyz", 4);
  ASSERT_THAT(reader.Placed(4), IsOk());
  EXPECT_THAT(reader.Place(), IsEmpty());
  ASSERT_EQ(collector.frames().size(), 1u);
  EXPECT_EQ(collector.frames()[0].arrays[1].bytes, "abcdefghij");
  EXPECT_EQ(collector.frames()[0].arrays[2].bytes, "wxyz");
}

TEST(FrameReaderPlace, ADroppedArrayHasNone) {
  RandomRequest random(1);
  Collector collector(random, 100);
  FrameReader reader(collector, kTextBytesMax);
  ASSERT_THAT(reader.Take(AsBytes(HeadOf(0, {10}) + "abc")), IsOk());
  EXPECT_THAT(reader.Place(), IsEmpty());
  EXPECT_THAT(reader.Take(AsBytes("defghijk")), IsOkAndHolds(7u));
  EXPECT_EQ(collector.frames().size(), 1u);
}

TEST(FrameReaderTake, RefusesTextsOverTheLimit) {
  RandomRequest random(1);
  Collector collector(random, 0);
  collector.text_bytes_max = 100;
  FrameReader reader(collector, 100);
  const std::string longest = BytesOf(MakeFrame(std::string(100, 'x')));
  EXPECT_THAT(reader.Take(AsBytes(longest)), IsOkAndHolds(longest.size()));
  for (const std::uint32_t size : {101u, 0x7fff'ffffu, 0xffff'ffffu}) {
    FrameReader other(collector, 100);
    EXPECT_THAT(other.Take(AsBytes(HeadOf(size, {}))),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(absl::StrCat(size))));
  }
  EXPECT_EQ(collector.frames().size(), 1u);
}

TEST(FrameReaderTake, RefusesTooManyArrays) {
  RandomRequest random(1);
  Collector collector(random, 0);
  FrameReader reader(collector, kTextBytesMax);
  const std::string most =
      HeadOf(0, std::vector<std::uint32_t>(kFrameArraysMax, 1)) + std::string(kFrameArraysMax, 'x');
  EXPECT_THAT(reader.Take(AsBytes(most)), IsOkAndHolds(most.size()));
  for (const std::uint32_t arrays : {std::uint32_t{kFrameArraysMax + 1}, 0xffff'ffffu}) {
    std::string head;
    Append(head, std::uint32_t{0});
    Append(head, arrays);
    FrameReader other(collector, kTextBytesMax);
    EXPECT_THAT(other.Take(AsBytes(head)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(absl::StrCat(arrays))));
  }
  EXPECT_EQ(collector.frames().size(), 1u);
}

TEST(FrameReaderTake, ErrorsOfTheSinkPassThrough) {
  const absl::Status error = absl::DataLossError("the sink's");
  RandomRequest random(1);
  for (const std::string& frame : {BytesOf(MakeFrame("")), HeadOf(0, {0}), HeadOf(0, {1}) + "x"}) {
    Collector begins(random, 0);
    begins.begin_status = error;
    FrameReader reader(begins, kTextBytesMax);
    EXPECT_EQ(reader.Take(AsBytes(frame)).status(), error);
    EXPECT_THAT(begins.frames(), IsEmpty());

    Collector ends(random, 0);
    ends.end_status = error;
    FrameReader other(ends, kTextBytesMax);
    EXPECT_EQ(other.Take(AsBytes(frame)).status(), error);
  }
}

TEST(FrameReaderPlaced, ErrorsOfTheSinkPassThrough) {
  RandomRequest random(1);
  Collector collector(random, 0);
  collector.end_status = absl::DataLossError("the sink's");
  FrameReader reader(collector, kTextBytesMax);
  ASSERT_THAT(reader.Take(AsBytes(HeadOf(0, {2}))), IsOk());
  ASSERT_EQ(reader.Place().size(), 2u);
  reader.Place()[0] = reader.Place()[1] = std::byte{1};
  EXPECT_EQ(reader.Placed(2), collector.end_status);
}

// Bytes that are no frames, or frames that somebody damaged.
std::string RandomBytes(RandomRequest& random) {
  if (random.Chance(30)) return random.Bytes(random.Below(2000));
  std::string bytes;
  for (std::uint64_t frames = 1 + random.Below(3); frames > 0; --frames) {
    std::vector<std::uint32_t> sizes(random.Below(kFrameArraysMax + 1));
    for (std::uint32_t& size : sizes) size = static_cast<std::uint32_t>(random.Below(300));
    bytes += HeadOf(static_cast<std::uint32_t>(random.Below(120)), sizes);
    bytes += random.Bytes(random.Below(2000));
  }
  if (random.Chance(50)) random.Mutate(bytes);
  return bytes;
}

TEST(FrameReaderTake, AnyBytesAreFramesWithinTheLimitsOrRefused) {
  for (const std::uint32_t seed : TestSeeds(20'000)) {
    SCOPED_TRACE(seed);
    RandomRequest random(seed);
    Collector collector(random, 20);
    collector.text_bytes_max = 100;
    FrameReader reader(collector, collector.text_bytes_max);
    const std::string bytes = RandomBytes(random);
    const absl::Status fed = FeedInPieces(bytes, random, reader, [](std::size_t) {});
    if (!fed.ok()) {
      EXPECT_THAT(fed, StatusIs(absl::StatusCode::kInvalidArgument));
      EXPECT_FALSE(collector.is_in_frame());
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace embla::wire
