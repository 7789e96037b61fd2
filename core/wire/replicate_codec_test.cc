// Messages between copies, as any protobuf encoder writes them.
#include "core/wire/replicate_codec.h"

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <grpcpp/support/slice.h>

#include "core/base/testing/status_matchers.h"
#include "embla/v1/data.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::wire::replicate_codec_test {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

void Fill(v1::UpdateRequest& update, std::uint64_t seq) {
  update.set_session(5);
  update.set_seq(seq);
  update.set_first_incomplete(1);
  update.set_wire_dtype(v1::WIRE_DTYPE_FP32);
  v1::UpdatePart& part = *update.add_parts();
  part.set_table_id(6);
  part.set_column_end(1);
  part.set_ids_count(1);
  part.set_form(v1::GRADIENT_FORM_ROWS);
  const auto row = static_cast<char>(seq);
  update.set_ids(std::string(1, row) + std::string(7, 0));
  update.set_gradients(std::string(4, 0));
}

v1::ReplicateRequest Request() {
  v1::ReplicateRequest request;
  request.set_table_id(6);
  request.set_reign(7);
  request.set_order(11);
  Fill(*request.mutable_update(), 1);
  return request;
}

absl::StatusOr<ReplicateCall> Decode(const std::string& text) {
  grpc::Slice slice(text);
  grpc::ByteBuffer bytes(&slice, 1);
  BufferPool pool;
  return DecodeReplicateRequest(bytes, pool, {});
}

TEST(DecodeReplicateRequest, HasTheUpdateInMemoryOfItsOwn) {
  const absl::StatusOr<ReplicateCall> call = Decode(Request().SerializeAsString());
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(call->kind, ReplicateCall::Kind::kUpdate);
  EXPECT_EQ(call->head.order, 11u);
  const UpdateBatch& update = call->update;
  EXPECT_EQ(update.seq, UpdateSeq{1});
  ASSERT_EQ(update.parts.size(), 1u);
  EXPECT_EQ(update.parts[0].ids[0], RowId{1});
  const auto* const ids = reinterpret_cast<const std::byte*>(update.parts[0].ids.data());
  EXPECT_TRUE(ids >= update.memory.data() &&
              ids + 8 <= update.memory.data() + update.memory.size());
}

TEST(DecodeReplicateRequest, RefusesMoreUpdatesAndASnapshotBesideOne) {
  v1::ReplicateRequest two = Request();
  Fill(*two.add_more_updates(), 2);
  EXPECT_THAT(Decode(two.SerializeAsString()).status().message(),
              HasSubstr("more than one update"));
  v1::ReplicateRequest snapshot;
  snapshot.set_reign(7);
  snapshot.mutable_snapshot()->set_first(true);
  EXPECT_THAT(
      Decode(Request().SerializeAsString() + snapshot.SerializeAsString()).status().message(),
      HasSubstr("two members of a oneof"));
}

// A data socket brings the text, and the arrays behind it.
TEST(DecodeReplicateText, HasWhatTheFrameHad) {
  const std::vector<RowId> ids = {RowId{3}, RowId{8}};
  const std::vector<float> gradients = {1.5f, 2.5f};
  UpdateBatch batch;
  batch.session = SessionId{5};
  batch.seq = UpdateSeq{9};
  UpdatePart& part = batch.parts.emplace_back();
  part.table = TableId{6};
  part.column_end = 1;
  part.ids = ids;
  part.gradients = std::as_bytes(std::span(gradients));
  const ReplicateHead head{.table = TableId{6},
                           .reign = 7,
                           .order = 11,
                           .serves = true,
                           .peer = {.nonce = "n", .node = "n1", .token = "t"}};
  const Frame frame =
      EncodeReplicateFrame({.sequence = 4, .deadline_ms = 50}, head, batch, GatherPayload(batch));
  const std::size_t arrays = frame.pieces.size();  // One piece each.
  ASSERT_EQ(arrays, 2u);
  const std::string text = frame.head.substr(8 + arrays * 8);

  absl::StatusOr<ReplicateText> decoded = DecodeReplicateText(text, {});
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->order.sequence, 4u);
  EXPECT_EQ(decoded->order.deadline_ms, 50u);
  ASSERT_THAT(decoded->call, IsOk());
  EXPECT_EQ(decoded->call->head.order, 11u);
  EXPECT_TRUE(decoded->call->head.serves);
  EXPECT_EQ(decoded->call->head.peer.node, "n1");
  UpdateBatch& update = decoded->call->update;
  EXPECT_EQ(update.seq, UpdateSeq{9});
  BufferPool pool;
  RequestMemory memory(pool, 100);
  std::memcpy(*memory.Place(v1::UpdateRequest::kIdsFieldNumber, 16), ids.data(), 16);
  std::memcpy(*memory.Place(v1::UpdateRequest::kGradientsFieldNumber, 8), gradients.data(), 8);
  ASSERT_THAT(AttachArrays(std::move(memory), update), IsOk());
  EXPECT_THAT(update.parts[0].ids, ::testing::ElementsAre(RowId{3}, RowId{8}));
  EXPECT_EQ(std::memcmp(update.parts[0].gradients.data(), gradients.data(), 8), 0);
}

TEST(DecodeReplicateText, TakesUpdatesAlone) {
  v1::ReplicateRequest request = Request();
  request.set_sequence(3);
  request.clear_update();
  request.mutable_snapshot()->set_first(true);
  const absl::StatusOr<ReplicateText> snapshot =
      DecodeReplicateText(request.SerializeAsString(), {});
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_EQ(snapshot->order.sequence, 3u);
  EXPECT_THAT(snapshot->call, StatusIs(absl::StatusCode::kInvalidArgument));
  request = Request();
  request.set_reign(0);
  EXPECT_THAT(DecodeReplicateText(request.SerializeAsString(), {})->call,
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(DecodeReplicateText("\x01", {}), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(DecodeReplicateAnswer, HasTheAckOrWhyThereIsNone) {
  const auto decoded = [](const ReplicateAnswer& answer) {
    return DecodeReplicateAnswer(std::string_view(EncodeReplicateAnswer(answer).head).substr(8));
  };
  const auto ack =
      decoded({.sequence = 4, .ack = ReplicateAck{.order = 3, .need_snapshot = true, .life = 17}});
  ASSERT_THAT(ack, IsOk());
  EXPECT_EQ(ack->sequence, 4u);
  ASSERT_THAT(ack->ack, IsOk());
  EXPECT_EQ(ack->ack->order, 3u);
  EXPECT_TRUE(ack->ack->need_snapshot);
  EXPECT_EQ(ack->ack->life, 17u);
  const auto refused = decoded({.sequence = 5, .ack = absl::UnavailableError("not yet")});
  ASSERT_THAT(refused, IsOk());
  EXPECT_EQ(refused->sequence, 5u);
  EXPECT_THAT(refused->ack, StatusIs(absl::StatusCode::kUnavailable, "not yet"));
  EXPECT_THAT(DecodeReplicateAnswer("\x01"), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace embla::wire::replicate_codec_test
