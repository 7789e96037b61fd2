// Damaged messages between copies: decoding may refuse them, but never crashes, takes no more
// memory than the message has, and what it lets through is what any protobuf decoder reads.
#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>

#include "core/base/testing/status_matchers.h"
#include "core/wire/random_request.h"
#include "core/wire/replicate_codec.h"
#include "core/wire/request_invariants.h"
#include "core/wire/request_memory.h"

namespace embla::wire {
namespace {

using ::embla::testing::IsOk;

constexpr std::uint64_t kSeed = 20261130;
constexpr int kRounds = 30'000;

class RandomReplicate {
 public:
  explicit RandomReplicate(std::uint64_t seed) : random_(seed) {}

  RandomRequest& random() { return random_; }

  v1::ReplicateRequest Head() {
    v1::ReplicateRequest request;
    request.set_table_id(static_cast<std::uint32_t>(1 + random_.Below(1000)));
    request.set_reign(1 + random_.Below(1 << 20));
    request.set_order(random_.Below(1 << 20));
    request.set_plan_version(random_.Below(1 << 10));
    request.set_term(random_.Below(1 << 10));
    request.set_life(random_.Below(1 << 10));
    request.set_serves(random_.Chance(50));
    request.mutable_peer()->set_nonce(random_.Bytes(random_.Below(20)));
    request.mutable_peer()->set_node("node");
    request.mutable_peer()->set_token(random_.Bytes(random_.Below(20)));
    return request;
  }

  v1::ReplicateRequest Update() {
    v1::ReplicateRequest request = Head();
    *request.mutable_update() = random_.Update();
    return request;
  }

  v1::ReplicateRequest Snapshot() {
    v1::ReplicateRequest request = Head();
    v1::SnapshotChunk& snapshot = *request.mutable_snapshot();
    snapshot.set_first(random_.Chance(50));
    snapshot.set_last(random_.Chance(50));
    snapshot.set_row_block(random_.Bytes(random_.Below(300)));
    for (std::uint64_t left = random_.Below(4); left > 0; --left) {
      v1::SessionWindow& window = *snapshot.add_windows();
      window.set_session(1 + random_.Below(1 << 20));
      window.set_floor(random_.Below(1 << 20));
      for (int word = 0; word < 4; ++word) window.add_words(random_.Below(1 << 30));
    }
    return request;
  }

  v1::ReplicateRequest Any() {
    const std::uint64_t dice = random_.Below(10);
    if (dice < 1) return Head();
    return dice < 6 ? Update() : Snapshot();
  }

 private:
  RandomRequest random_;
};

void ExpectHead(const ReplicateHead& head, const v1::ReplicateRequest& expected) {
  EXPECT_EQ(ToInt(head.table), expected.table_id());
  EXPECT_EQ(head.reign, expected.reign());
  EXPECT_EQ(head.order, expected.order());
  EXPECT_EQ(ToInt(head.plan_version), expected.plan_version());
  EXPECT_EQ(ToInt(head.term), expected.term());
  EXPECT_EQ(head.life, expected.life());
  EXPECT_EQ(head.serves, expected.serves());
  EXPECT_EQ(head.peer.nonce, expected.peer().nonce());
  EXPECT_EQ(head.peer.token, expected.peer().token());
}

// `text` was accepted as `call`.
void ExpectAsProtobufSays(const ReplicateCall& call, const std::string& text) {
  v1::ReplicateRequest expected;
  // Protobuf refuses an unknown group that does not end, and the decoder skips it.
  if (!expected.ParseFromString(text)) {
    if (call.kind == ReplicateCall::Kind::kUpdate) CheckInvariants(call.update);
    return;
  }
  ExpectHead(call.head, expected);
  if (call.kind == ReplicateCall::Kind::kUpdate) {
    EXPECT_TRUE(expected.has_update());
    CheckInvariants(call.update);
    EXPECT_EQ(ToInt(call.update.seq), expected.update().seq());
  } else if (call.kind == ReplicateCall::Kind::kSnapshot) {
    const v1::SnapshotChunk& snapshot = expected.snapshot();
    ASSERT_EQ(call.snapshot.row_block.size(), snapshot.row_block().size());
    EXPECT_EQ(std::memcmp(call.snapshot.row_block.data(), snapshot.row_block().data(),
                          snapshot.row_block().size()),
              0);
    EXPECT_EQ(call.snapshot.first, snapshot.first());
    EXPECT_EQ(call.snapshot.last, snapshot.last());
    ASSERT_EQ(call.snapshot.windows.size(), static_cast<std::size_t>(snapshot.windows_size()));
    for (int i = 0; i < snapshot.windows_size(); ++i) {
      EXPECT_EQ(call.snapshot.windows[i].session, snapshot.windows(i).session());
      EXPECT_EQ(call.snapshot.windows[i].words[3], snapshot.windows(i).words(3));
    }
  }
}

TEST(ReplicateCodecFuzz, DamagedMessagesAreRefusedOrWhatProtobufReads) {
  SCOPED_TRACE(kSeed);
  RandomReplicate messages(kSeed);
  RandomRequest& random = messages.random();
  BufferPool pool;
  int accepted = 0;
  for (int round = 0; round < kRounds && !::testing::Test::HasFailure(); ++round) {
    SCOPED_TRACE(round);
    std::string text = messages.Any().SerializeAsString();
    random.Mutate(text);
    grpc::ByteBuffer bytes = random.Cut(text);
    const absl::StatusOr<ReplicateCall> call = DecodeReplicateRequest(bytes, pool, SmallLimits());
    if (!call.ok()) continue;
    ExpectAsProtobufSays(*call, text);
    ++accepted;
  }
  EXPECT_GT(accepted, kRounds / 10);
}

TEST(ReplicateCodecFuzz, CutMessagesAreRefusedOrWhatProtobufReads) {
  SCOPED_TRACE(kSeed);
  RandomReplicate messages(kSeed);
  BufferPool pool;
  for (const std::string& whole :
       {messages.Update().SerializeAsString(), messages.Snapshot().SerializeAsString()}) {
    for (std::size_t size = 0; size <= whole.size(); ++size) {
      SCOPED_TRACE(size);
      const std::string text = whole.substr(0, size);
      grpc::ByteBuffer bytes = messages.random().Cut(text);
      const absl::StatusOr<ReplicateCall> call = DecodeReplicateRequest(bytes, pool, SmallLimits());
      if (call.ok()) ExpectAsProtobufSays(*call, text);
      EXPECT_TRUE(call.ok() || size < whole.size());
    }
  }
}

// A data socket brings the text, which is damaged, and the arrays behind it, which are not.
TEST(ReplicateCodecFuzz, DamagedTextsAreRefusedOrConsistent) {
  SCOPED_TRACE(kSeed);
  RandomReplicate messages(kSeed);
  RandomRequest& random = messages.random();
  BufferPool pool;
  int accepted = 0;
  for (int round = 0; round < kRounds && !::testing::Test::HasFailure(); ++round) {
    SCOPED_TRACE(round);
    v1::ReplicateRequest request = messages.Update();
    request.set_sequence(random.Below(100));
    v1::UpdateRequest& update = *request.mutable_update();
    const std::pair<int, std::string> arrays[] = {
        {v1::UpdateRequest::kIdsFieldNumber, std::exchange(*update.mutable_ids(), {})},
        {v1::UpdateRequest::kLengthsFieldNumber, std::exchange(*update.mutable_lengths(), {})},
        {v1::UpdateRequest::kWeightsFieldNumber, std::exchange(*update.mutable_weights(), {})},
        {v1::UpdateRequest::kRowSumSquaresFieldNumber,
         std::exchange(*update.mutable_row_sum_squares(), {})},
        {v1::UpdateRequest::kGradientsFieldNumber, std::exchange(*update.mutable_gradients(), {})}};
    std::string text = request.SerializeAsString();
    if (random.Chance(90)) random.Mutate(text);
    absl::StatusOr<ReplicateText> decoded = DecodeReplicateText(text, SmallLimits());
    if (!decoded.ok() || decoded->move != nullptr || !decoded->call.ok()) continue;
    RequestMemory memory(pool, 1 << 16);
    for (const auto& [number, content] : arrays) {
      if (content.empty()) continue;
      const absl::StatusOr<std::byte*> place = memory.Place(number, content.size());
      ASSERT_THAT(place, IsOk());
      std::memcpy(*place, content.data(), content.size());
    }
    if (!AttachArrays(std::move(memory), decoded->call->update).ok()) continue;
    CheckInvariants(decoded->call->update);
    ++accepted;
  }
  EXPECT_GT(accepted, kRounds / 10);
}

TEST(ReplicateCodecFuzz, DamagedAnswersAreRefusedOrReadAgainAsTheSame) {
  SCOPED_TRACE(kSeed);
  RandomRequest random(kSeed);
  int accepted = 0;
  for (int round = 0; round < kRounds; ++round) {
    ReplicateAnswer answer{.sequence = random.Below(1000)};
    if (random.Chance(70)) {
      answer.ack = ReplicateAck{.order = random.Below(1 << 20),
                                .need_snapshot = random.Chance(50),
                                .life = random.Below(1 << 20),
                                .gone = random.Chance(20),
                                .early_max = random.Below(64)};
    } else {
      answer.ack = absl::UnavailableError(std::string(random.Below(40), 'x'));
    }
    std::string text = EncodeReplicateAnswer(answer).head.substr(8);
    random.Mutate(text);
    const absl::StatusOr<ReplicateAnswer> decoded = DecodeReplicateAnswer(text);
    if (decoded.ok()) {
      const auto again =
          DecodeReplicateAnswer(std::string_view(EncodeReplicateAnswer(*decoded).head).substr(8));
      ASSERT_THAT(again, IsOk());
      EXPECT_EQ(again->sequence, decoded->sequence);
      ASSERT_EQ(again->ack.status().code(), decoded->ack.status().code());
      if (again->ack.ok()) {
        EXPECT_EQ(again->ack->order, decoded->ack->order);
      }
      ++accepted;
    }
    grpc::ByteBuffer bytes = random.Cut(text);
    static_cast<void>(DecodeReplicateReply(bytes));
  }
  EXPECT_GT(accepted, kRounds / 10);
}

}  // namespace
}  // namespace embla::wire
