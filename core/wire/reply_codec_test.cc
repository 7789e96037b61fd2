#include "core/wire/reply_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>

#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "core/wire/random_request.h"
#include "embla/v1/data.pb.h"

namespace embla::wire {
namespace {

using ::embla::testing::IsOk;

constexpr std::uint64_t kSeed = 99;

Buffer Rows(std::size_t size) {
  Buffer rows = Buffer::Allocate(size);
  for (std::size_t i = 0; i < size; ++i) rows.data()[i] = static_cast<std::byte>(i * 31 + i / 251);
  return rows;
}

std::string Text(const Buffer& rows) {
  return std::string(reinterpret_cast<const char*>(rows.data()), rows.size());
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
  std::vector<grpc::ByteBuffer> frames = EncodeStreamLookupReply(
      5, {.plan_version = PlanVersion{3}}, std::move(rows), {.bytes_max = 65'536});
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
      EncodeStreamLookupReply(5, {.plan_version = PlanVersion{3}}, Buffer(), {});
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

TEST(ReplyCodecDecode, ReadsUpdatesAndErrors) {
  grpc::ByteBuffer update =
      EncodeStreamUpdateReply(3, {.plan_version = PlanVersion{6}, .duplicate = true});
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
  grpc::ByteBuffer streamed = EncodeStreamUpdateReply(3, partial);
  EXPECT_EQ(DecodeStreamReply(streamed, nullptr)->refused, partial.refused);
  grpc::ByteBuffer answered = EncodeUpdateReply(partial);
  EXPECT_EQ(DecodeUpdateReply(answered)->refused, partial.refused);

  grpc::ByteBuffer error = EncodeStreamError(3, absl::NotFoundError("no table 5"));
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
  grpc::ByteBuffer streamed = EncodeStreamUpdateReply(3, partial);
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
  std::vector<grpc::ByteBuffer> streamed = EncodeStreamLookupReply(3, refused, Buffer(), {});
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
  grpc::ByteBuffer streamed = EncodeStreamUpdateReply(3, partial);
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
    (void)DecodeStreamReply(bytes, [&](std::uint64_t, std::size_t size) {
      EXPECT_LE(size, text.size());
      rows.resize(size);
      return absl::StatusOr<std::byte*>(reinterpret_cast<std::byte*>(rows.data()));
    });
  }
}

}  // namespace
}  // namespace embla::wire
