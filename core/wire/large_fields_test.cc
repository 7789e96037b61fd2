#include "core/wire/large_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "core/wire/random_request.h"
#include "embla/v1/data.pb.h"

namespace embla::wire {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;

constexpr int kLarge[] = {v1::LookupReply::kRowsFieldNumber};

grpc::ByteBuffer FromText(const std::string& text) {
  grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, text.empty() ? 0 : 1);
}

absl::Status Decode(const std::string& text, const DecodeLimits& limits = {}) {
  grpc::ByteBuffer bytes = FromText(text);
  std::string rows;
  v1::LookupReply small;
  return DecodeMessage(
      bytes, kLarge,
      [&](int, std::size_t size) -> absl::StatusOr<std::byte*> {
        EXPECT_LE(size, text.size()) << "placed before the size was checked";
        rows.resize(size);
        return reinterpret_cast<std::byte*>(rows.data());
      },
      limits, small);
}

TEST(SliceOf, KeepsTheBufferUntilTheLastReference) {
  BufferPool pool;
  auto slice = std::make_unique<grpc::Slice>(SliceOf(pool.Take(100'000)));
  auto part = std::make_unique<grpc::Slice>(slice->sub(1000, 90'000));
  slice.reset();
  EXPECT_EQ(pool.retained_bytes(), 0u);
  part.reset();
  EXPECT_GE(pool.retained_bytes(), 100'000u);
}

TEST(DecodeMessage, AnEmptyMessageHasDefaults) { EXPECT_THAT(Decode(""), IsOk()); }

TEST(DecodeMessage, RefusesAnUnsetByteBuffer) {
  grpc::ByteBuffer unset;
  v1::LookupReply small;
  EXPECT_EQ(DecodeMessage(unset, kLarge, nullptr, {}, small).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(DecodeMessage, SkipsUnknownFieldsOfEveryWireType) {
  std::string text;
  text += std::string("\x98\x06\x05", 3);                        // 99: varint
  text += std::string("\x99\x06", 2) + std::string(8, 'x');      // 99: fixed64
  text += std::string("\x9a\x06\x03", 3) + std::string(3, 'x');  // 99: bytes
  text += std::string("\x9d\x06", 2) + std::string(4, 'x');      // 99: fixed32
  EXPECT_THAT(Decode(text), IsOk());
}

TEST(DecodeMessage, RefusesWhatIsNoMessage) {
  const struct {
    const char* what;
    std::string text;
  } cases[] = {
      {"tag 0", std::string(1, '\0')},
      {"field number 0", std::string("\x02\x01x", 3)},
      {"group", std::string("\x0b\x0c", 2)},
      {"wire type 7", std::string("\x0f\x01", 2)},
      {"tag cut", std::string("\x80", 1)},
      {"varint cut", std::string("\x08\x80", 2)},
      {"varint too long", std::string("\x08", 1) + std::string(11, '\xff')},
      {"fixed64 cut", std::string("\x99\x06xxx", 5)},
      {"length cut", std::string("\x12\x80", 2)},
      {"rows cut", std::string("\x12\x05"
                               "abcd",
                               6)},
      {"rows of 2^31", std::string("\x12\x80\x80\x80\x80\x08", 6)},
      {"rows of 2^32 - 1", std::string("\x12\xff\xff\xff\xff\x0f", 6)},
      {"rows of 2^64 - 1", std::string("\x12") + std::string(9, '\xff') + "\x01"},
  };
  for (const auto& bad : cases) {
    EXPECT_EQ(Decode(bad.text).code(), absl::StatusCode::kInvalidArgument) << bad.what;
  }
}

TEST(DecodeMessage, BoundsLargeAndSmallFields) {
  v1::LookupReply reply;
  reply.set_rows(std::string(100, 'x'));
  EXPECT_THAT(Message(Decode(reply.SerializeAsString(), {.large_bytes_max = 99})),
              HasSubstr("at most 99"));
  EXPECT_THAT(Decode(reply.SerializeAsString(), {.large_bytes_max = 100}), IsOk());
  const std::string unknown = std::string("\x9a\x06\x64", 3) + std::string(100, 'x');
  EXPECT_THAT(Message(Decode(unknown, {.small_bytes_max = 99})), HasSubstr("more than 99"));
}

TEST(DecodeMessage, BoundsFieldsOfMessagesInMessages) {
  v1::SyncReply reply;
  for (int i = 0; i < 10; ++i) reply.add_tables()->set_table_id(7);
  const auto decode = [text = reply.SerializeAsString()](std::size_t fields_max) {
    grpc::ByteBuffer bytes = FromText(text);
    v1::SyncReply small;
    const PlaceField place = [](int, std::size_t) -> absl::StatusOr<std::byte*> {
      return absl::InternalError("no large fields");
    };
    return DecodeMessage(bytes, {}, place, {.small_fields_max = fields_max}, small);
  };
  EXPECT_THAT(Message(decode(19)), HasSubstr("more than 19 fields"));
  EXPECT_THAT(decode(20), IsOk());
}

TEST(DecodeNested, RefusesTwoMembersOfAOneof) {
  v1::StreamReply lookup;
  lookup.mutable_lookup()->set_plan_version(1);
  v1::StreamReply update;
  update.mutable_update()->set_plan_version(1);
  grpc::ByteBuffer bytes = FromText(lookup.SerializeAsString() + update.SerializeAsString());
  v1::LookupReply small_lookup;
  v1::UpdateReply small_update;
  v1::StreamReply envelope;
  const NestedMessage nested[] = {{v1::StreamReply::kLookupFieldNumber, kLarge, &small_lookup},
                                  {v1::StreamReply::kUpdateFieldNumber, {}, &small_update}};
  EXPECT_EQ(DecodeNested(bytes, nested, nullptr, {}, envelope).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(EncodeMessage, PiecesOfAFieldAreOneField) {
  const std::string ids(2000, 'i');
  const std::string gradients = std::string(3000, 'g') + std::string(100, 'h');
  const auto field = [](int number, std::string_view bytes) {
    return LargeField(number, grpc::Slice(bytes.data(), bytes.size()));
  };
  const std::string_view all = gradients;
  const std::vector<LargeField> whole = {field(1, ids), field(2, gradients), field(3, "few")};
  const std::vector<LargeField> pieces = {field(1, ids),
                                          field(2, all.substr(0, 1)),
                                          field(2, ""),
                                          field(2, all.substr(1, 2999)),
                                          field(2, all.substr(3000)),
                                          field(3, "f"),
                                          field(3, "ew"),
                                          field(4, "")};
  const auto text_of = [](SplitMessage message, bool borrows) {
    message.borrows = borrows;
    const grpc::ByteBuffer joined = Join(message);
    std::vector<grpc::Slice> slices;
    EXPECT_EQ(joined.Dump(&slices).error_code(), grpc::StatusCode::OK);
    std::string text;
    for (const grpc::Slice& slice : slices) {
      text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    EXPECT_EQ(text.size(), message.bytes() + 3);  // The submessage's tag and length.
    return text;
  };
  const SplitMessage expected{.envelope = "", .number = 5, .small = "", .fields = whole};
  const SplitMessage given{.envelope = "", .number = 5, .small = "", .fields = pieces};
  EXPECT_EQ(text_of(given, false), text_of(expected, false));
  EXPECT_EQ(text_of(given, true), text_of(expected, false));
}

TEST(EncodeMessage, LeavesEmptyFieldsOut) {
  const grpc::ByteBuffer bytes = EncodeMessage(v1::LookupReply(), {{2, Buffer()}});
  EXPECT_EQ(bytes.Length(), 0u);
  EXPECT_TRUE(bytes.Valid());
}

}  // namespace
}  // namespace embla::wire
