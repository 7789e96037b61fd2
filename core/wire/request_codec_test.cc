#include "core/wire/request_codec.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "core/wire/random_request.h"
#include "core/wire/request_invariants.h"
#include "embla/v1/data.pb.h"

namespace embla::wire::request_codec_test {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint64_t kSeed = 20240607;

// The request that our own encoder makes of a decoded one.
v1::LookupRequest Again(const LookupCall& call) {
  grpc::ByteBuffer bytes = EncodeLookupRequest(call.batch, GatherPayload(call.batch));
  v1::LookupRequest request;
  EXPECT_TRUE(request.ParseFromString(Flatten(bytes)));
  return request;
}

v1::UpdateRequest Again(const UpdateBatch& batch) {
  grpc::ByteBuffer bytes = EncodeUpdateRequest(batch, GatherPayload(batch));
  v1::UpdateRequest request;
  EXPECT_TRUE(request.ParseFromString(Flatten(bytes)));
  return request;
}

// Requires: request.call.ok().
SplitMessage Encoded(const StreamRequest& request) {
  const StreamCall call{request.sequence, request.deadline_ms, request.asks_data_socket,
                        request.reserve};
  if (const auto* lookup = std::get_if<LookupCall>(&*request.call)) {
    return EncodeStreamLookup(call, lookup->batch, GatherPayload(lookup->batch),
                              lookup->frame_bytes_max);
  }
  const auto& update = std::get<UpdateBatch>(*request.call);
  return EncodeStreamUpdate(call, update, GatherPayload(update));
}

// Values that have several spellings, in the one our encoder uses.
template <typename Request>
Request Canonical(Request request) {
  if (request.wire_dtype() == v1::WIRE_DTYPE_UNSPECIFIED) {
    request.set_wire_dtype(v1::WIRE_DTYPE_FP32);
  }
  for (auto& part : *request.mutable_parts()) {
    if (part.ids_count() == 0) part.set_weighted(false);
    if constexpr (std::is_same_v<Request, v1::UpdateRequest>) {
      if (part.ids_count() == 0) part.set_has_row_sum_squares(false);
    }
  }
  return request;
}

TEST(RequestCodecDecode, ReadsWhatGeneratedCodeWritesAndWritesWhatItReads) {
  SCOPED_TRACE(kSeed);
  RandomRequest random(kSeed);
  BufferPool pool;
  for (int round = 0; round < 2000; ++round) {
    v1::LookupRequest lookup = random.Lookup();
    grpc::ByteBuffer lookup_bytes = random.Cut(lookup.SerializeAsString());
    auto lookup_call = DecodeLookupRequest(lookup_bytes, pool, {});
    ASSERT_THAT(lookup_call, IsOk()) << lookup.ShortDebugString();
    lookup.clear_frame_bytes_max();
    EXPECT_TRUE(MessageDifferencer::Equals(Again(*lookup_call), Canonical(lookup)))
        << round << lookup.ShortDebugString();

    const v1::UpdateRequest update = random.Update();
    grpc::ByteBuffer update_bytes = random.Cut(update.SerializeAsString());
    auto update_call = DecodeUpdateRequest(update_bytes, pool, {});
    ASSERT_THAT(update_call, IsOk()) << update.ShortDebugString();
    v1::UpdateRequest canonical = Canonical(update);
    EXPECT_TRUE(MessageDifferencer::Equals(Again(*update_call), canonical))
        << round << update.ShortDebugString();
  }
}

TEST(RequestCodecDecode, ReadsStreamRequestsOfGeneratedCode) {
  SCOPED_TRACE(kSeed);
  RandomRequest random(kSeed);
  BufferPool pool;
  for (int round = 0; round < 2000; ++round) {
    const v1::StreamRequest stream = random.Stream();
    grpc::ByteBuffer bytes = random.Cut(stream.SerializeAsString());
    auto request = DecodeStreamRequest(bytes, pool, {});
    ASSERT_THAT(request, IsOk());
    ASSERT_THAT(request->call, IsOk());
    EXPECT_EQ(request->sequence, stream.sequence());
    EXPECT_EQ(request->deadline_ms, stream.deadline_ms());

    v1::StreamRequest again;
    ASSERT_TRUE(again.ParseFromString(Flatten(Join(Encoded(*request)))));
    v1::StreamRequest expected = stream;
    if (expected.has_lookup()) {
      v1::LookupRequest canonical = Canonical(expected.lookup());
      canonical.set_frame_bytes_max(std::min(canonical.frame_bytes_max(), 4u << 20));
      *expected.mutable_lookup() = canonical;
    } else {
      v1::UpdateRequest canonical = Canonical(expected.update());
      *expected.mutable_update() = canonical;
    }
    EXPECT_TRUE(MessageDifferencer::Equals(again, expected)) << expected.ShortDebugString();
  }
}

TEST(RequestCodecDecode, AFrameIsTheRequestThatItsMessageIs) {
  SCOPED_TRACE(kSeed);
  RandomRequest random(kSeed);
  BufferPool pool;
  for (int round = 0; round < 2000; ++round) {
    v1::StreamRequest stream = random.Stream();
    stream.set_asks_data_socket(random.Chance(50));
    grpc::ByteBuffer bytes = random.Cut(stream.SerializeAsString());
    const auto decoded = DecodeStreamRequest(bytes, pool, {});
    ASSERT_THAT(decoded, IsOk());
    ASSERT_THAT(decoded->call, IsOk());
    const SplitMessage message = Encoded(*decoded);
    grpc::ByteBuffer joined = Join(message);
    const auto expected = DecodeStreamRequest(joined, pool, {});
    ASSERT_THAT(expected, IsOk());
    ASSERT_THAT(expected->call, IsOk());

    const std::vector<StreamRequest> framed =
        DecodeFrames(random.Cut(BytesOf(MakeFrame(message))), pool, {});

    ASSERT_EQ(framed.size(), 1u) << stream.ShortDebugString();
    ASSERT_THAT(framed[0].call, IsOk()) << stream.ShortDebugString();
    EXPECT_EQ(framed[0].sequence, stream.sequence());
    EXPECT_EQ(framed[0].deadline_ms, stream.deadline_ms());
    EXPECT_EQ(framed[0].asks_data_socket, stream.asks_data_socket());
    EXPECT_EQ(framed[0].is_update, stream.has_update());
    EXPECT_EQ(Flatten(Join(Encoded(framed[0]))), Flatten(Join(Encoded(*expected))))
        << stream.ShortDebugString();
    if (!stream.has_lookup()) continue;
    const auto& lookup = std::get<LookupCall>(*framed[0].call);
    EXPECT_EQ(lookup.reply_bytes, std::get<LookupCall>(*expected->call).reply_bytes);
    EXPECT_EQ(lookup.staged_bytes, std::get<LookupCall>(*expected->call).staged_bytes);
  }
}

TEST(RequestCodecDecode, WhatIsNoTraceparentIsIgnored) {
  RandomRequest random(kSeed);
  BufferPool pool;
  const std::string valid = random.Traceparent();
  for (const std::string& text :
       {std::string("\xff\xfe\x00", 3), valid.substr(1), valid + "-", std::string(5000, '0')}) {
    v1::LookupRequest lookup = random.Lookup();
    lookup.set_traceparent(text);
    grpc::ByteBuffer lookup_bytes = random.Cut(lookup.SerializeAsString());
    const auto lookup_call = DecodeLookupRequest(lookup_bytes, pool, {});
    ASSERT_THAT(lookup_call, IsOk());
    EXPECT_FALSE(lookup_call->batch.trace.is_set());
    EXPECT_EQ(Again(*lookup_call).traceparent(), "");
    v1::UpdateRequest update = random.Update();
    update.set_traceparent(text);
    grpc::ByteBuffer update_bytes = random.Cut(update.SerializeAsString());
    const auto update_call = DecodeUpdateRequest(update_bytes, pool, {});
    ASSERT_THAT(update_call, IsOk());
    EXPECT_FALSE(update_call->trace.is_set());
  }
}

TEST(RequestCodecDecode, AlignsEveryPayload) {
  RandomRequest random(kSeed);
  BufferPool pool;
  for (int round = 0; round < 50; ++round) {
    grpc::ByteBuffer bytes = random.Cut(random.Lookup().SerializeAsString());
    const auto call = DecodeLookupRequest(bytes, pool, {});
    ASSERT_THAT(call, IsOk());
    if (call->batch.parts.empty()) continue;
    const auto address = reinterpret_cast<std::uintptr_t>(call->batch.parts[0].ids.data());
    EXPECT_EQ(address % kBufferAlignment, 0u);
  }
}

TEST(RequestCodecDecode, LastOccurrenceOfAFieldWins) {
  v1::LookupRequest first;
  first.set_ids(std::string(16, 'x'));
  v1::LookupRequest second;
  v1::LookupPart& part = *second.add_parts();
  part.set_table_id(1);
  part.set_pooling(v1::POOLING_NONE);
  part.set_column_end(4);
  part.set_ids_count(1);
  const std::int64_t id = 77;
  second.set_ids(std::string(reinterpret_cast<const char*>(&id), 8));
  grpc::Slice joined(first.SerializeAsString() + second.SerializeAsString());
  grpc::ByteBuffer bytes(&joined, 1);
  BufferPool pool;

  const auto call = DecodeLookupRequest(bytes, pool, {});

  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(call->batch.parts[0].ids[0], RowId{77});
}

// docs/protocol.md, "One lookup, byte by byte".
TEST(RequestCodecEncode, WritesTheBytesOfTheProtocolPage) {
  const RowId ids[] = {RowId{5}, RowId{9}};
  const std::uint32_t lengths[] = {2};
  LookupBatch batch;
  batch.plan_version = PlanVersion{3};
  batch.parts.push_back({.table = TableId{7},
                         .pooling = Pooling::kSum,
                         .column_begin = 0,
                         .column_end = 4,
                         .ids = ids,
                         .lengths = lengths,
                         .weights = {}});
  const std::string page(
      "\x08\x03\x10\x01\x22\x0a\x08\x07\x10\x02\x20\x04\x28\x02\x30\x01\x2a\x10"
      "\x05\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00"
      "\x32\x04\x02\x00\x00\x00",
      40);
  EXPECT_EQ(Flatten(EncodeLookupRequest(batch, GatherPayload(batch))), page);
}

TEST(RequestCodecDecode, CountsTheBytesOfTheReply) {
  v1::LookupRequest request;
  v1::LookupPart& part = *request.add_parts();
  part.set_table_id(1);
  part.set_pooling(v1::POOLING_NONE);
  part.set_column_end(10);
  part.set_ids_count(3);
  request.set_ids(std::string(24, '\0'));
  request.set_wire_dtype(v1::WIRE_DTYPE_INT8);
  grpc::Slice flat(request.SerializeAsString());
  grpc::ByteBuffer bytes(&flat, 1);
  BufferPool pool;
  EXPECT_EQ(DecodeLookupRequest(bytes, pool, {})->reply_bytes, 3u * 18u);
}

// A node gathers int8 rows of cut columns as fp32 before it converts them.
TEST(RequestCodecDecode, CountsTheBytesOfInt8RowsThatMayBeStaged) {
  v1::LookupRequest request;
  v1::LookupPart& part = *request.add_parts();
  part.set_table_id(1);
  part.set_pooling(v1::POOLING_NONE);
  part.set_column_end(10);
  part.set_ids_count(3);
  request.set_ids(std::string(24, '\0'));
  BufferPool pool;
  for (const auto& [dtype, staged] :
       {std::pair(v1::WIRE_DTYPE_INT8, 3u * 40u), std::pair(v1::WIRE_DTYPE_FP16, 0u)}) {
    request.set_wire_dtype(dtype);
    grpc::Slice flat(request.SerializeAsString());
    grpc::ByteBuffer bytes(&flat, 1);
    EXPECT_EQ(DecodeLookupRequest(bytes, pool, {})->staged_bytes, staged);
  }
}

// --- Malformed requests: a valid one, one thing wrong, and what the message says of it.

struct BadLookup {
  const char* name;
  std::function<void(v1::LookupRequest&)> damage;
  const char* message;
};

v1::LookupRequest GoodLookup() {
  v1::LookupRequest request;
  v1::LookupPart& part = *request.add_parts();
  part.set_table_id(1);
  part.set_pooling(v1::POOLING_SUM);
  part.set_column_end(4);
  part.set_ids_count(3);
  part.set_bags_count(2);
  part.set_weighted(true);
  request.set_ids(std::string(24, '\0'));
  const std::uint32_t lengths[] = {1, 2};
  request.set_lengths(std::string(reinterpret_cast<const char*>(lengths), 8));
  request.set_weights(std::string(12, '\0'));
  return request;
}

class RequestCodecBadLookup : public ::testing::TestWithParam<BadLookup> {};

TEST_P(RequestCodecBadLookup, IsInvalidArgumentAndSaysWhy) {
  v1::LookupRequest request = GoodLookup();
  GetParam().damage(request);
  grpc::Slice flat(request.SerializeAsString());
  grpc::ByteBuffer bytes(&flat, 1);
  BufferPool pool;
  RequestLimits limits;
  limits.parts_max = 8;
  limits.ids_max = 1000;
  limits.reply_bytes_max = 4000;

  const auto call = DecodeLookupRequest(bytes, pool, limits);

  EXPECT_EQ(call.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(call.status()), HasSubstr(GetParam().message));
}

v1::LookupPart& Part(v1::LookupRequest& request) { return *request.mutable_parts(0); }

INSTANTIATE_TEST_SUITE_P(
    All, RequestCodecBadLookup,
    ::testing::Values(
        BadLookup{"IdsCountTooLarge", [](auto& r) { Part(r).set_ids_count(4); }, "`ids`"},
        BadLookup{"IdsCountHuge", [](auto& r) { Part(r).set_ids_count(1u << 31); }, "at most 1000"},
        BadLookup{"IdsCountTooSmall", [](auto& r) { Part(r).set_ids_count(2); }, "sum to 3"},
        BadLookup{"IdsTruncated", [](auto& r) { r.mutable_ids()->resize(23); }, "multiple of 8"},
        BadLookup{"IdsLeftOver", [](auto& r) { r.mutable_ids()->resize(32); }, "no part"},
        BadLookup{"LengthsShort", [](auto& r) { r.mutable_lengths()->resize(4); }, "`lengths`"},
        BadLookup{"LengthsOdd", [](auto& r) { r.mutable_lengths()->resize(7); }, "multiple of 4"},
        BadLookup{"LengthsOverflow",
                  [](auto& r) {
                    const std::uint32_t lengths[] = {0xffffffff, 4};  // 3 when it wraps.
                    r.set_lengths(std::string(reinterpret_cast<const char*>(lengths), 8));
                  },
                  "sum to 4294967299"},
        BadLookup{"WeightsMissing", [](auto& r) { r.clear_weights(); }, "`weights`"},
        BadLookup{"WeightsUnasked", [](auto& r) { Part(r).set_weighted(false); }, "no part"},
        BadLookup{"WeightsWithMean", [](auto& r) { Part(r).set_pooling(v1::POOLING_MEAN); },
                  "weights go with"},
        BadLookup{"BagsWithoutPooling", [](auto& r) { Part(r).set_pooling(v1::POOLING_NONE); },
                  "bags_count"},
        BadLookup{"PoolingUnset", [](auto& r) { Part(r).clear_pooling(); }, "pooling is 0"},
        BadLookup{"PoolingUnknown",
                  [](auto& r) { Part(r).set_pooling(static_cast<v1::Pooling>(9)); },
                  "pooling is 9"},
        BadLookup{"DTypeUnknown", [](auto& r) { r.set_wire_dtype(static_cast<v1::WireDType>(9)); },
                  "wire_dtype is 9"},
        BadLookup{"ColumnsEmpty", [](auto& r) { Part(r).set_column_begin(4); }, "columns [4, 4)"},
        BadLookup{"ColumnsWide", [](auto& r) { Part(r).set_column_end(1u << 31); }, "columns [0,"},
        BadLookup{"NoTable", [](auto& r) { Part(r).clear_table_id(); }, "table_id is 0"},
        BadLookup{"ReplyTooLarge", [](auto& r) { Part(r).set_column_end(2000); }, "at most 4000"},
        BadLookup{"FrameTooSmall", [](auto& r) { r.set_frame_bytes_max(100); }, "frame_bytes_max"},
        BadLookup{"TooManyParts",
                  [](auto& r) {
                    for (int i = 0; i < 8; ++i) *r.add_parts() = r.parts(0);
                  },
                  "9 parts"}),
    [](const auto& info) { return std::string(info.param.name); });

struct BadUpdate {
  const char* name;
  std::function<void(v1::UpdateRequest&)> damage;
  const char* message;
};

v1::UpdateRequest GoodUpdate() {
  v1::UpdateRequest request;
  request.set_session(1);
  request.set_seq(5);
  request.set_first_incomplete(2);
  v1::UpdatePart& part = *request.add_parts();
  part.set_table_id(1);
  part.set_form(v1::GRADIENT_FORM_ROWS);
  part.set_column_end(4);
  part.set_ids_count(2);
  part.set_has_row_sum_squares(true);
  request.set_ids(std::string(16, '\0'));
  request.set_row_sum_squares(std::string(8, '\0'));
  request.set_gradients(std::string(32, '\0'));
  return request;
}

class RequestCodecBadUpdate : public ::testing::TestWithParam<BadUpdate> {};

TEST_P(RequestCodecBadUpdate, IsInvalidArgumentAndSaysWhy) {
  v1::UpdateRequest request = GoodUpdate();
  GetParam().damage(request);
  grpc::Slice flat(request.SerializeAsString());
  grpc::ByteBuffer bytes(&flat, 1);
  BufferPool pool;

  const auto call = DecodeUpdateRequest(bytes, pool, {});

  EXPECT_EQ(call.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(call.status()), HasSubstr(GetParam().message));
}

v1::UpdatePart& Part(v1::UpdateRequest& request) { return *request.mutable_parts(0); }

INSTANTIATE_TEST_SUITE_P(
    All, RequestCodecBadUpdate,
    ::testing::Values(
        BadUpdate{"NoSession", [](auto& r) { r.clear_session(); }, "session is 0"},
        BadUpdate{"NoSeq", [](auto& r) { r.clear_seq(); }, "seq is 0"},
        BadUpdate{"IncompleteAfterSeq", [](auto& r) { r.set_first_incomplete(6); }, "is after seq"},
        BadUpdate{"FormUnset", [](auto& r) { Part(r).clear_form(); }, "form is 0"},
        BadUpdate{"FormUnknown",
                  [](auto& r) { Part(r).set_form(static_cast<v1::GradientForm>(7)); }, "form is 7"},
        BadUpdate{"BagsWithoutPooling", [](auto& r) { Part(r).set_form(v1::GRADIENT_FORM_BAGS); },
                  "pooling is 0"},
        BadUpdate{"SumsWithBags",
                  [](auto& r) {
                    Part(r).set_form(v1::GRADIENT_FORM_BAGS);
                    Part(r).set_pooling(v1::POOLING_SUM);
                  },
                  "row_sum_squares"},
        BadUpdate{"WeightsWithRows", [](auto& r) { Part(r).set_weighted(true); }, "weights"},
        BadUpdate{"BagsWithRows", [](auto& r) { Part(r).set_bags_count(1); }, "bags_count"},
        BadUpdate{"PoolingWithRows", [](auto& r) { Part(r).set_pooling(v1::POOLING_SUM); },
                  "pooling with form 1"},
        BadUpdate{"GradientsShort", [](auto& r) { r.mutable_gradients()->resize(31); },
                  "`gradients`"},
        BadUpdate{"GradientsOfAnotherDType", [](auto& r) { r.set_wire_dtype(v1::WIRE_DTYPE_FP16); },
                  "`gradients`"},
        BadUpdate{"SumsShort", [](auto& r) { r.mutable_row_sum_squares()->resize(4); },
                  "`row_sum_squares`"},
        BadUpdate{"DTypeUnknown", [](auto& r) { r.set_wire_dtype(static_cast<v1::WireDType>(5)); },
                  "wire_dtype is 5"}),
    [](const auto& info) { return std::string(info.param.name); });

v1::UpdateRequest GoodContribution() {
  v1::UpdateRequest request = GoodUpdate();
  Part(request).set_has_row_sum_squares(false);
  Part(request).set_clipped(true);
  request.clear_row_sum_squares();
  request.mutable_claim()->set_table_id(1);
  v1::UnitRun& run = *request.mutable_claim()->add_units();
  run.set_column_granule(2);
  run.set_granule_begin(5);
  run.set_granule_end(9);
  return request;
}

TEST(RequestCodecDecode, ReadsWhatAContributionClaims) {
  v1::UpdateRequest request = GoodContribution();
  request.mutable_claim()->set_rank(3);
  request.mutable_claim()->set_resumes(true);
  grpc::Slice flat(request.SerializeAsString());
  grpc::ByteBuffer bytes(&flat, 1);
  BufferPool pool;

  const auto call = DecodeUpdateRequest(bytes, pool, {});

  ASSERT_THAT(call, IsOk());
  ASSERT_TRUE(call->claim.has_value());
  EXPECT_EQ(call->claim->table, TableId{1});
  EXPECT_EQ(call->claim->rank, Rank{3});
  EXPECT_TRUE(call->claim->resumes);
  EXPECT_EQ(call->claim->units, UnitSet(UnitSet::Run{2, 5, 9}));
}

class RequestCodecBadContribution : public ::testing::TestWithParam<BadUpdate> {};

TEST_P(RequestCodecBadContribution, IsInvalidArgumentAndSaysWhy) {
  v1::UpdateRequest request = GoodContribution();
  GetParam().damage(request);
  grpc::Slice flat(request.SerializeAsString());
  grpc::ByteBuffer bytes(&flat, 1);
  BufferPool pool;

  const auto call = DecodeUpdateRequest(bytes, pool, {});

  EXPECT_EQ(call.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(call.status()), HasSubstr(GetParam().message));
}

v1::UnitRun& Run(v1::UpdateRequest& request) { return *request.mutable_claim()->mutable_units(0); }

INSTANTIATE_TEST_SUITE_P(
    All, RequestCodecBadContribution,
    ::testing::Values(
        BadUpdate{"NoTable", [](auto& r) { r.mutable_claim()->clear_table_id(); }, "table_id is 0"},
        BadUpdate{"NoUnits", [](auto& r) { r.mutable_claim()->clear_units(); }, "0 runs of units"},
        BadUpdate{"TooManyRuns",
                  [](auto& r) {
                    for (int i = 0; i < 4096; ++i) *r.mutable_claim()->add_units() = Run(r);
                  },
                  "4097 runs of units"},
        BadUpdate{"EmptyRun", [](auto& r) { Run(r).set_granule_end(5); }, "[5, 5)"},
        BadUpdate{"TurnedRun", [](auto& r) { Run(r).set_granule_end(4); }, "[5, 4)"},
        BadUpdate{"RunTooLong", [](auto& r) { Run(r).set_granule_end((1 << 20) + 1); },
                  "are no units"},
        BadUpdate{"ColumnTooLarge", [](auto& r) { Run(r).set_column_granule(1u << 31); },
                  "are no units"},
        BadUpdate{"AnotherTable", [](auto& r) { Part(r).set_table_id(2); }, "of table 2"},
        BadUpdate{"NotClipped", [](auto& r) { Part(r).set_clipped(false); }, "is clipped"},
        BadUpdate{"Bags",
                  [](auto& r) {
                    Part(r).set_form(v1::GRADIENT_FORM_BAGS);
                    Part(r).set_pooling(v1::POOLING_SUM);
                    Part(r).set_bags_count(2);
                  },
                  "has form 1"},
        BadUpdate{"Sums",
                  [](auto& r) {
                    Part(r).set_has_row_sum_squares(true);
                    r.set_row_sum_squares(std::string(8, '\0'));
                  },
                  "no row_sum_squares"}),
    [](const auto& info) { return std::string(info.param.name); });

// --- Frames whose arrays are not those that the text speaks of.

v1::UpdateRequest GoodBags() {
  v1::UpdateRequest request = GoodUpdate();
  Part(request).set_has_row_sum_squares(false);
  request.clear_row_sum_squares();
  Part(request).set_form(v1::GRADIENT_FORM_BAGS);
  Part(request).set_pooling(v1::POOLING_SUM);
  Part(request).set_bags_count(2);
  Part(request).set_weighted(true);
  const std::uint32_t lengths[] = {1, 1};
  request.set_lengths(std::string(reinterpret_cast<const char*>(lengths), 8));
  request.set_weights(std::string(8, '\0'));
  return request;
}

// One of each kind, which together have all arrays.
std::vector<v1::StreamRequest> GoodStreams() {
  std::vector<v1::StreamRequest> streams(3);
  *streams[0].mutable_lookup() = GoodLookup();
  *streams[1].mutable_update() = GoodUpdate();
  *streams[2].mutable_update() = GoodBags();
  for (v1::StreamRequest& stream : streams) stream.set_sequence(42);
  return streams;
}

std::string NameOf(bool is_update, int number) {
  const auto* const kind =
      is_update ? v1::UpdateRequest::descriptor() : v1::LookupRequest::descriptor();
  return std::string(kind->FindFieldByNumber(number)->name());
}

// The only request of a frame.
StreamRequest DecodeFrame(const SplitMessage& message, BufferPool& pool) {
  const std::string bytes = BytesOf(MakeFrame(message));
  grpc::Slice flat(bytes);
  std::vector<StreamRequest> requests = DecodeFrames(grpc::ByteBuffer(&flat, 1), pool, {});
  EXPECT_EQ(requests.size(), 1u);
  if (requests.empty()) return {.call = absl::InternalError("no frame")};
  return std::move(requests[0]);
}

struct ArrayDamage {
  const char* name;
  std::function<std::string(const std::string&)> damage;
};

class RequestCodecBadArray : public ::testing::TestWithParam<ArrayDamage> {};

TEST_P(RequestCodecBadArray, IsInvalidArgumentAndNamed) {
  BufferPool pool;
  for (const v1::StreamRequest& stream : GoodStreams()) {
    const SplitMessage good = SplitOf(stream);
    ASSERT_THAT(DecodeFrame(good, pool).call, IsOk());
    for (std::size_t i = 0; i < good.fields.size(); ++i) {
      if (good.fields[i].slice.size() == 0) continue;
      const std::string name = NameOf(stream.has_update(), good.fields[i].number);
      SCOPED_TRACE(name);
      SplitMessage bad = good;
      const grpc::Slice& slice = good.fields[i].slice;
      bad.fields[i].slice = grpc::Slice(GetParam().damage(
          std::string(reinterpret_cast<const char*>(slice.begin()), slice.size())));

      const StreamRequest request = DecodeFrame(bad, pool);

      EXPECT_EQ(request.sequence, 42u);
      EXPECT_THAT(request.call,
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("`" + name + "`")));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RequestCodecBadArray,
    ::testing::Values(ArrayDamage{"Missing", [](const std::string&) { return std::string(); }},
                      ArrayDamage{"OneByteShort", [](const std::string& a) { return a.substr(1); }},
                      ArrayDamage{"EightBytesShort",
                                  [](const std::string& a) { return a.substr(8); }},
                      ArrayDamage{"OneByteLong", [](const std::string& a) { return a + '\0'; }},
                      ArrayDamage{"EightBytesLong",
                                  [](const std::string& a) { return a + std::string(8, '\0'); }}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(RequestCodecDecode, ArraysOfOtherFieldsAreIgnored) {
  BufferPool pool;
  for (const v1::StreamRequest& stream : GoodStreams()) {
    SplitMessage message = SplitOf(stream);
    const StreamRequest expected = DecodeFrame(message, pool);
    message.fields.insert(message.fields.begin(),
                          LargeField(99, grpc::Slice(std::string(999, 'x'))));
    const StreamRequest request = DecodeFrame(message, pool);
    ASSERT_THAT(request.call, IsOk());
    EXPECT_EQ(Flatten(Join(Encoded(request))), Flatten(Join(Encoded(expected))));
  }
}

TEST(RequestCodecDecode, ArraysInsideATextAreMissing) {
  BufferPool pool;
  for (const v1::StreamRequest& stream : GoodStreams()) {
    const SplitMessage message{.envelope = stream.SerializeAsString(), .small = {}, .fields = {}};
    EXPECT_THAT(DecodeFrame(message, pool).call,
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("`ids`")));
  }
}

TEST(RequestCodecDecode, ATextThatIsTooLongOrNoRequestHasNoSequence) {
  const RequestLimits limits;
  EXPECT_THAT(DecodeStreamText(std::string(TextBytesMax(limits) + 1, '\0'), limits),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(DecodeStreamText("\x0f\x01", limits), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(RequestCodecDecode, RefusesPayloadsOverTheLimit) {
  v1::LookupRequest request = GoodLookup();
  grpc::Slice flat(request.SerializeAsString());
  grpc::ByteBuffer bytes(&flat, 1);
  BufferPool pool;
  RequestLimits limits;
  limits.request_bytes_max = 30;
  const auto call = DecodeLookupRequest(bytes, pool, limits);
  EXPECT_EQ(call.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(call.status()), HasSubstr("at most 30"));
}

TEST(RequestCodecDecode, AnswersABadCallUnderItsSequence) {
  v1::StreamRequest stream;
  stream.set_sequence(42);
  *stream.mutable_lookup() = GoodLookup();
  stream.mutable_lookup()->mutable_ids()->resize(23);
  BufferPool pool;
  grpc::Slice flat(stream.SerializeAsString());
  grpc::ByteBuffer bytes(&flat, 1);
  const auto request = DecodeStreamRequest(bytes, pool, {});
  ASSERT_THAT(request, IsOk());
  EXPECT_EQ(request->sequence, 42u);
  EXPECT_EQ(request->call.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(RequestCodecDecode, AStreamRequestWithoutCallIsAnswered) {
  v1::StreamRequest stream;
  stream.set_sequence(7);
  BufferPool pool;
  grpc::Slice flat(stream.SerializeAsString());
  grpc::ByteBuffer bytes(&flat, 1);
  const auto request = DecodeStreamRequest(bytes, pool, {});
  ASSERT_THAT(request, IsOk());
  EXPECT_EQ(request->sequence, 7u);
  EXPECT_THAT(request->call, Not(IsOk()));
}

}  // namespace
}  // namespace embla::wire::request_codec_test
