#include "core/wire/reply_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "core/base/retry_hint.h"
#include "core/base/status_macros.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "core/wire/frame.h"
#include "core/wire/random_request.h"
#include "embla/v1/data.pb.h"

namespace embla::wire::reply_codec_test {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;

constexpr std::uint64_t kSeed = 99;

Buffer Rows(std::size_t size) {
  Buffer rows = Buffer::Allocate(size);
  for (std::size_t i = 0; i < size; ++i) rows.data()[i] = static_cast<std::byte>(i * 31 + i / 251);
  return rows;
}

std::string Text(const Buffer& rows) {
  return std::string(reinterpret_cast<const char*>(rows.data()), rows.size());
}

std::vector<grpc::ByteBuffer> Joined(const std::vector<SplitMessage>& messages) {
  std::vector<grpc::ByteBuffer> joined;
  for (const SplitMessage& message : messages) joined.push_back(Join(message));
  return joined;
}

struct ReplyAndRows {
  StreamReply reply;
  std::string rows;
};

// Decodes the reply of a frame as a client does: the text first, then the rows.
class FramedReply final : public FrameReader::Sink {
 public:
  absl::StatusOr<ReplyAndRows> Decode(const Frame& frame) {
    constexpr std::size_t kTextBytesMax = 1 << 20;
    FrameReader reader(*this, kTextBytesMax);
    std::vector<grpc::Slice> pieces = frame.pieces;
    pieces.insert(pieces.begin(), grpc::Slice(frame.head));
    for (const grpc::Slice& piece : pieces) {
      std::span<const std::byte> left(reinterpret_cast<const std::byte*>(piece.begin()),
                                      piece.size());
      while (!left.empty()) {
        EMBLA_ASSIGN_OR_RETURN(const std::size_t taken, reader.Take(left));
        left = left.subspan(taken);
      }
    }
    EXPECT_TRUE(is_over_);
    return std::move(decoded_);
  }

  absl::Status BeginFrame(std::string_view text, std::span<const FrameArray> arrays,
                          std::span<std::byte*> places) override {
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      EXPECT_EQ(arrays[i].number, std::uint32_t{v1::LookupReply::kRowsFieldNumber});
      decoded_.rows.resize(arrays[i].bytes);
      places[i] = reinterpret_cast<std::byte*>(decoded_.rows.data());
    }
    EMBLA_ASSIGN_OR_RETURN(decoded_.reply, DecodeStreamReplyText(text, decoded_.rows.size()));
    return absl::OkStatus();
  }
  absl::Status EndFrame() override {
    is_over_ = true;
    return absl::OkStatus();
  }

 private:
  ReplyAndRows decoded_;
  bool is_over_ = false;
};

// Decodes a message that is in one piece.
absl::StatusOr<ReplyAndRows> DecodeWhole(const SplitMessage& message) {
  grpc::ByteBuffer bytes = Join(message);
  ReplyAndRows decoded;
  EMBLA_ASSIGN_OR_RETURN(
      decoded.reply,
      DecodeStreamReply(bytes, [&](std::uint64_t, std::size_t size) -> absl::StatusOr<std::byte*> {
        decoded.rows.resize(size);
        return reinterpret_cast<std::byte*>(decoded.rows.data());
      }));
  return decoded;
}

void ExpectFrameIsMessage(const SplitMessage& message) {
  const auto whole = DecodeWhole(message);
  const auto framed = FramedReply().Decode(MakeFrame(message));
  ASSERT_THAT(whole, IsOk());
  ASSERT_THAT(framed, IsOk());
  EXPECT_EQ(framed->rows, whole->rows);
  EXPECT_EQ(framed->reply.sequence, whole->reply.sequence);
  EXPECT_EQ(framed->reply.kind, whole->reply.kind);
  EXPECT_EQ(framed->reply.status, whole->reply.status);
  EXPECT_EQ(framed->reply.plan_version, whole->reply.plan_version);
  EXPECT_EQ(framed->reply.rows_bytes, whole->reply.rows_bytes);
  EXPECT_EQ(framed->reply.duplicate, whole->reply.duplicate);
  EXPECT_EQ(framed->reply.refused, whole->reply.refused);
  EXPECT_EQ(framed->reply.refused_claims, whole->reply.refused_claims);
  EXPECT_EQ(framed->reply.more, whole->reply.more);
  EXPECT_EQ(framed->reply.offer.address, whole->reply.offer.address);
  EXPECT_EQ(framed->reply.offer.ticket, whole->reply.offer.ticket);
}

std::vector<RefusedUnit> RandomUnits(RandomRequest& random) {
  std::vector<RefusedUnit> units(random.Below(4));
  for (RefusedUnit& unit : units) {
    const auto begin = static_cast<std::int64_t>(random.Below(1'000'000'000'000));
    unit = {.part = static_cast<std::uint32_t>(random.Below(99)),
            .row_begin = begin,
            .row_end = begin + 1,
            .reason = static_cast<RefusedUnit::Reason>(1 + random.Below(4)),
            .retry_after_ms = static_cast<std::uint32_t>(random.Below(99)),
            .plan_version = PlanVersion{random.Below(99)},
            .column_begin = 4,
            .column_end = 12,
            .owner = NodeId{static_cast<std::uint32_t>(random.Below(9))},
            .epoch = random.Below(99)};
  }
  return units;
}

std::vector<RefusedClaim> RandomClaims(RandomRequest& random) {
  std::vector<RefusedClaim> claims(random.Below(4));
  for (RefusedClaim& claim : claims) {
    const auto begin = static_cast<std::uint32_t>(random.Below(1000));
    claim = {.units = {.column_granule = 3, .begin = begin, .end = begin + 5},
             .reason = static_cast<RefusedClaim::Reason>(1 + random.Below(3)),
             .retry_after_ms = static_cast<std::uint32_t>(random.Below(99)),
             .plan_version = PlanVersion{random.Below(99)},
             .owner = NodeId{static_cast<std::uint32_t>(random.Below(9))},
             .epoch = random.Below(99)};
  }
  return claims;
}

TEST(ReplyCodecEncode, GeneratedCodeReadsLookupReplies) {
  for (const std::size_t size : {0, 1, 255, 256, 257, 100'000}) {
    v1::LookupReply reply;
    ASSERT_TRUE(reply.ParseFromString(
        Flatten(EncodeLookupReply({.plan_version = PlanVersion{9}}, Rows(size)))));
    EXPECT_EQ(reply.plan_version(), 9u);
    EXPECT_EQ(reply.rows(), Text(Rows(size)));
  }
}

TEST(ReplyCodecEncode, SendsRowsWithoutACopy) {
  Buffer rows = Rows(100'000);
  const auto* const memory = reinterpret_cast<const std::uint8_t*>(rows.data());
  const grpc::ByteBuffer bytes =
      EncodeLookupReply({.plan_version = PlanVersion{1}}, std::move(rows));
  std::vector<grpc::Slice> slices;
  ASSERT_THAT(bytes.Dump(&slices), IsOk());
  EXPECT_EQ(slices.back().begin(), memory);
  EXPECT_EQ(slices.back().size(), 100'000u);
}

TEST(ReplyCodecEncode, FramesJoinToTheRowsAndShareTheirMemory) {
  Buffer rows = Rows(200'001);
  const auto* const memory = reinterpret_cast<const std::uint8_t*>(rows.data());
  const std::vector<grpc::ByteBuffer> frames = Joined(EncodeStreamLookupReply(
      5, {.plan_version = PlanVersion{3}}, std::move(rows), {.bytes_max = 65'536}));
  ASSERT_EQ(frames.size(), 4u);
  std::string joined;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    v1::StreamReply reply;
    ASSERT_TRUE(reply.ParseFromString(Flatten(frames[i])));
    EXPECT_EQ(reply.sequence(), 5u);
    EXPECT_EQ(reply.more(), i + 1 < frames.size());
    EXPECT_LE(reply.lookup().rows().size(), 65'536u);
    std::vector<grpc::Slice> slices;
    ASSERT_THAT(frames[i].Dump(&slices), IsOk());
    EXPECT_EQ(slices.back().begin(), memory + joined.size());
    joined += reply.lookup().rows();
  }
  EXPECT_EQ(joined, Text(Rows(200'001)));
}

TEST(ReplyCodecEncode, EmptyRowsAreOneFrame) {
  std::vector<grpc::ByteBuffer> frames =
      Joined(EncodeStreamLookupReply(5, {.plan_version = PlanVersion{3}}, Buffer(), {}));
  ASSERT_EQ(frames.size(), 1u);
  const auto reply = DecodeStreamReply(frames[0], nullptr);
  ASSERT_THAT(reply, IsOk());
  EXPECT_EQ(reply->kind, StreamReply::Kind::kLookup);
  EXPECT_EQ(reply->plan_version, PlanVersion{3});
  EXPECT_FALSE(reply->more);
}

TEST(ReplyCodecDecode, CopiesRowsToTheirPlace) {
  RandomRequest random(kSeed);
  v1::LookupReply reply;
  reply.set_plan_version(4);
  reply.set_rows(random.Bytes(10'000));
  grpc::ByteBuffer bytes = random.Cut(reply.SerializeAsString());
  Buffer target;
  const auto decoded = DecodeLookupReply(bytes, [&](std::size_t size) {
    target = Buffer::Allocate(size);
    return absl::StatusOr<std::byte*>(target.data());
  });
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->plan_version, PlanVersion{4});
  EXPECT_EQ(Text(target), reply.rows());
}

TEST(ReplyCodecDecode, ErrorOfPlacePassesThrough) {
  grpc::ByteBuffer bytes = EncodeLookupReply({.plan_version = PlanVersion{4}}, Rows(1000));
  const auto version = DecodeLookupReply(bytes, [](std::size_t) -> absl::StatusOr<std::byte*> {
    return absl::OutOfRangeError("too many rows");
  });
  EXPECT_EQ(version.status().code(), absl::StatusCode::kOutOfRange);
}

TEST(ReplyCodecDecode, ReadsEveryKindOfStreamReplyInAnyFieldOrder) {
  // Rows first, the sequence after them: still known when the rows are placed.
  v1::StreamReply body;
  body.mutable_lookup()->set_rows("0123456789");
  body.mutable_lookup()->set_plan_version(8);
  v1::StreamReply head;
  head.set_sequence(77);
  head.set_more(true);
  grpc::Slice joined(body.SerializeAsString() + head.SerializeAsString());
  grpc::ByteBuffer bytes(&joined, 1);
  std::string rows;
  std::uint64_t placed_for = 0;
  const auto reply = DecodeStreamReply(bytes, [&](std::uint64_t sequence, std::size_t size) {
    placed_for = sequence;
    rows.resize(size);
    return absl::StatusOr<std::byte*>(reinterpret_cast<std::byte*>(rows.data()));
  });
  ASSERT_THAT(reply, IsOk());
  EXPECT_EQ(placed_for, 77u);
  EXPECT_EQ(rows, "0123456789");
  EXPECT_EQ(reply->rows_bytes, 10u);
  EXPECT_TRUE(reply->more);
  EXPECT_EQ(reply->plan_version, PlanVersion{8});
}

TEST(ReplyCodecDecode, AFrameIsTheReplyThatItsMessageIs) {
  SCOPED_TRACE(kSeed);
  RandomRequest random(kSeed);
  for (int round = 0; round < 500; ++round) {
    SCOPED_TRACE(round);
    const std::uint64_t sequence = random.Below(1000);
    const PlanVersion plan_version{random.Below(1000)};
    const auto wait = absl::Milliseconds(static_cast<int>(random.Below(3)));
    for (const SplitMessage& message : EncodeStreamLookupReply(
             sequence, {.plan_version = plan_version}, Rows(random.Below(200'000)),
             {.bytes_max = 65'536, .more = random.Chance(50)})) {
      ExpectFrameIsMessage(message);
    }
    for (const SplitMessage& message : EncodeStreamLookupReply(
             sequence, {.plan_version = plan_version, .refused = RandomUnits(random)}, Buffer(),
             {})) {
      ExpectFrameIsMessage(message);
    }
    ExpectFrameIsMessage(
        EncodeStreamUpdateReply(sequence, {.plan_version = plan_version,
                                           .duplicate = random.Chance(50),
                                           .refused = RandomUnits(random),
                                           .refused_claims = RandomClaims(random)}));
    ExpectFrameIsMessage(EncodeStreamError(
        sequence, WithRetryAfter(absl::ResourceExhaustedError("queue full"), wait)));
    ExpectFrameIsMessage(
        EncodeStreamOffer({.address = "@embla", .ticket = random.Traceparent().substr(3, 32)}));
  }
}

TEST(ReplyCodecDecode, AnOfferComesAsMessageAndAsFrame) {
  const DataSocketOffer offer{.address = "@embla-77",
                              .ticket = std::string(kTicketBytes, 't'),
                              .by_port = true,
                              .takes_seals = true};
  const SplitMessage message = EncodeStreamOffer(offer);
  for (const auto& decoded : {DecodeWhole(message), FramedReply().Decode(MakeFrame(message))}) {
    ASSERT_THAT(decoded, IsOk());
    EXPECT_EQ(decoded->reply.kind, StreamReply::Kind::kOffer);
    EXPECT_EQ(decoded->reply.sequence, 0u);
    EXPECT_EQ(decoded->reply.offer.address, offer.address);
    EXPECT_EQ(decoded->reply.offer.ticket, offer.ticket);
    EXPECT_TRUE(decoded->reply.offer.by_port);
    EXPECT_TRUE(decoded->reply.offer.takes_seals);
  }
  v1::StreamReply generated;
  ASSERT_TRUE(generated.ParseFromString(Flatten(Join(message))));
  EXPECT_EQ(generated.data_socket().address(), offer.address);
  EXPECT_EQ(generated.data_socket().ticket(), offer.ticket);
  EXPECT_TRUE(generated.data_socket().by_port());
}

TEST(ReplyCodecDecode, ATextWithoutResultIsNoReply) {
  for (const std::string_view text : {"", "\x08\x03", "\x0f\x01"}) {
    EXPECT_THAT(DecodeStreamReplyText(text, 0), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST(ReplyCodecDecode, ReadsUpdatesAndErrors) {
  grpc::ByteBuffer update =
      Join(EncodeStreamUpdateReply(3, {.plan_version = PlanVersion{6}, .duplicate = true}));
  const auto updated = DecodeStreamReply(update, nullptr);
  ASSERT_THAT(updated, IsOk());
  EXPECT_EQ(updated->kind, StreamReply::Kind::kUpdate);
  EXPECT_TRUE(updated->duplicate);
  EXPECT_EQ(updated->plan_version, PlanVersion{6});

  UpdateReply partial{.plan_version = PlanVersion{6}};
  for (const auto reason : {RefusedUnit::Reason::kFrozen, RefusedUnit::Reason::kMoved,
                            RefusedUnit::Reason::kEpochAhead, RefusedUnit::Reason::kSeqTooNew}) {
    partial.refused.push_back({.part = 1,
                               .row_begin = 1'000'000'000'000,
                               .row_end = 1'000'000'000'100,
                               .reason = reason,
                               .retry_after_ms = 5,
                               .plan_version = PlanVersion{9},
                               .column_begin = 4,
                               .column_end = 12,
                               .owner = NodeId{3},
                               .epoch = std::uint64_t{1} << 40});
  }
  grpc::ByteBuffer streamed = Join(EncodeStreamUpdateReply(3, partial));
  EXPECT_EQ(DecodeStreamReply(streamed, nullptr)->refused, partial.refused);
  grpc::ByteBuffer answered = EncodeUpdateReply(partial);
  EXPECT_EQ(DecodeUpdateReply(answered)->refused, partial.refused);

  grpc::ByteBuffer error = Join(EncodeStreamError(3, absl::NotFoundError("no table 5")));
  const auto failed = DecodeStreamReply(error, nullptr);
  ASSERT_THAT(failed, IsOk());
  EXPECT_EQ(failed->kind, StreamReply::Kind::kError);
  EXPECT_EQ(failed->status, absl::NotFoundError("no table 5"));

  grpc::ByteBuffer unary = EncodeUpdateReply({.plan_version = PlanVersion{6}, .duplicate = false});
  EXPECT_EQ(DecodeUpdateReply(unary)->plan_version, PlanVersion{6});
}

TEST(ReplyCodecDecode, ReadsTheClaimsThatAreRefused) {
  UpdateReply partial{.plan_version = PlanVersion{6}};
  for (const auto reason : {RefusedClaim::Reason::kFrozen, RefusedClaim::Reason::kMoved,
                            RefusedClaim::Reason::kAgain}) {
    partial.refused_claims.push_back({.units = {.column_granule = 3, .begin = 70, .end = 900},
                                      .reason = reason,
                                      .retry_after_ms = 5,
                                      .plan_version = PlanVersion{9},
                                      .owner = NodeId{3},
                                      .epoch = 7});
  }
  grpc::ByteBuffer streamed = Join(EncodeStreamUpdateReply(3, partial));
  EXPECT_EQ(DecodeStreamReply(streamed, nullptr)->refused_claims, partial.refused_claims);
  grpc::ByteBuffer answered = EncodeUpdateReply(partial);
  EXPECT_EQ(DecodeUpdateReply(answered)->refused_claims, partial.refused_claims);
}

TEST(ReplyCodecDecode, ReadsLookupsThatAreRefused) {
  const LookupReply refused{.plan_version = PlanVersion{6},
                            .refused = {{.part = 2,
                                         .row_begin = 70,
                                         .row_end = 90,
                                         .reason = RefusedUnit::Reason::kMoved,
                                         .plan_version = PlanVersion{9},
                                         .column_end = 8,
                                         .owner = NodeId{3},
                                         .epoch = 7}}};
  std::vector<grpc::ByteBuffer> streamed =
      Joined(EncodeStreamLookupReply(3, refused, Buffer(), {}));
  ASSERT_EQ(streamed.size(), 1u);
  const auto in_stream = DecodeStreamReply(streamed[0], nullptr);
  ASSERT_THAT(in_stream, IsOk());
  EXPECT_EQ(in_stream->kind, StreamReply::Kind::kLookup);
  EXPECT_EQ(in_stream->plan_version, PlanVersion{6});
  EXPECT_EQ(in_stream->refused, refused.refused);
  grpc::ByteBuffer answered = EncodeLookupReply(refused, Buffer());
  EXPECT_EQ(DecodeLookupReply(answered, nullptr)->refused, refused.refused);
}

TEST(ReplyCodecDecode, ARefusedClaimHasUnits) {
  const UpdateReply partial{.refused_claims = {{.units = {.begin = 7, .end = 7}}}};
  grpc::ByteBuffer streamed = Join(EncodeStreamUpdateReply(3, partial));
  EXPECT_EQ(DecodeStreamReply(streamed, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
  grpc::ByteBuffer answered = EncodeUpdateReply(partial);
  EXPECT_EQ(DecodeUpdateReply(answered).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReplyCodecDecode, DamagedRepliesAreErrorsNotCrashes) {
  SCOPED_TRACE(kSeed);
  RandomRequest random(kSeed);
  for (int round = 0; round < 10'000; ++round) {
    v1::StreamReply reply;
    reply.set_sequence(random.Below(1000));
    reply.set_more(random.Chance(50));
    if (random.Chance(70)) {
      reply.mutable_lookup()->set_rows(random.Bytes(random.Below(500)));
    } else if (random.Chance(50)) {
      v1::RefusedUnit& refused = random.Chance(50) ? *reply.mutable_lookup()->add_refused()
                                                   : *reply.mutable_update()->add_refused();
      refused.set_reason(v1::RefusedUnit::REASON_MOVED);
      refused.set_row_end(static_cast<std::int64_t>(random.Below(99)));
      refused.set_owner(static_cast<std::uint32_t>(random.Below(9)));
      refused.set_epoch(random.Below(9));
    } else {
      v1::RefusedClaim& refused = *reply.mutable_update()->add_refused_claims();
      refused.mutable_units()->set_granule_begin(static_cast<std::uint32_t>(random.Below(9)));
      refused.mutable_units()->set_granule_end(static_cast<std::uint32_t>(random.Below(99)));
    }
    std::string text = reply.SerializeAsString();
    random.Mutate(text);
    grpc::ByteBuffer bytes = random.Cut(text);
    std::string rows;
    (void)DecodeStreamReplyText(text, 0);
    (void)DecodeStreamReply(bytes, [&](std::uint64_t, std::size_t size) {
      EXPECT_LE(size, text.size());
      rows.resize(size);
      return absl::StatusOr<std::byte*>(reinterpret_cast<std::byte*>(rows.data()));
    });
  }
}

}  // namespace
}  // namespace embla::wire::reply_codec_test
