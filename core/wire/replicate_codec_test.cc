// Messages between copies, as any protobuf encoder writes them.
#include "core/wire/replicate_codec.h"

#include <cstdint>
#include <string>

#include <grpcpp/support/slice.h>

#include "core/base/testing/status_matchers.h"
#include "embla/v1/data.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::wire {
namespace {

using ::embla::testing::IsOk;
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

v1::ReplicateRequest Request(std::uint64_t updates) {
  v1::ReplicateRequest request;
  request.set_table_id(6);
  request.set_reign(7);
  request.set_order(11);
  for (std::uint64_t seq = 1; seq <= updates; ++seq) {
    Fill(seq == 1 ? *request.mutable_update() : *request.add_more_updates(), seq);
  }
  return request;
}

absl::StatusOr<ReplicateCall> Decode(const std::string& text) {
  grpc::Slice slice(text);
  grpc::ByteBuffer bytes(&slice, 1);
  BufferPool pool;
  return DecodeReplicateRequest(bytes, pool, {});
}

TEST(DecodeReplicateRequest, HasAllUpdatesInTheirOrderEachInMemoryOfItsOwn) {
  const absl::StatusOr<ReplicateCall> call = Decode(Request(3).SerializeAsString());
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(call->kind, ReplicateCall::Kind::kUpdate);
  EXPECT_EQ(call->head.order, 11u);
  ASSERT_EQ(call->updates.size(), 3u);
  for (std::uint64_t i = 0; i < 3; ++i) {
    const UpdateCall& update = call->updates[i];
    EXPECT_EQ(update.batch.seq, UpdateSeq{i + 1});
    ASSERT_EQ(update.batch.parts.size(), 1u);
    EXPECT_EQ(update.batch.parts[0].ids[0], RowId{static_cast<std::int64_t>(i + 1)});
    const auto* const ids = reinterpret_cast<const std::byte*>(update.batch.parts[0].ids.data());
    EXPECT_TRUE(ids >= update.memory.data() &&
                ids + 8 <= update.memory.data() + update.memory.size());
  }
}

TEST(DecodeReplicateRequest, TakesNoMoreUpdatesThanItSays) {
  EXPECT_THAT(Decode(Request(kReplicateUpdatesMax).SerializeAsString()), IsOk());
  EXPECT_THAT(Decode(Request(kReplicateUpdatesMax + 1).SerializeAsString()).status().message(),
              HasSubstr("more than 64 updates"));
}

TEST(DecodeReplicateRequest, RefusesUpdatesWithoutAFirstOneAndBesideASnapshot) {
  v1::ReplicateRequest no_first = Request(2);
  no_first.clear_update();
  EXPECT_THAT(Decode(no_first.SerializeAsString()).status().message(),
              HasSubstr("other updates without a first one"));
  EXPECT_THAT(
      Decode(Request(1).SerializeAsString() + Request(1).SerializeAsString()).status().message(),
      HasSubstr("the first update is not the first"));
  v1::ReplicateRequest snapshot;
  snapshot.set_reign(7);
  snapshot.mutable_snapshot()->set_first(true);
  EXPECT_THAT(
      Decode(Request(2).SerializeAsString() + snapshot.SerializeAsString()).status().message(),
      HasSubstr("an update and a snapshot"));
}

}  // namespace
}  // namespace embla::wire
