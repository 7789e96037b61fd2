#include "client/transport/pending_calls.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace embla::client {
namespace {

constexpr std::uint64_t kSequence = 5;

wire::StreamReply ReplyOf(wire::StreamReply::Kind kind) {
  wire::StreamReply reply;
  reply.sequence = kSequence;
  reply.kind = kind;
  return reply;
}

class PendingCallsTest : public ::testing::Test {
 protected:
  // An update that is asked for by 40 bytes, and has some more.
  PendingCallsTest() {
    wire::SplitMessage withheld;
    withheld.envelope = "withheld";
    calls_.Add(kSequence, {.call = NodeUpdate(), .deadline = absl::InfiniteFuture(), .done = {}},
               40, std::move(withheld), seal_);
  }

  const std::shared_ptr<wire::Seal> seal_ = wire::Seal::Make();
  PendingCalls calls_;
};

TEST_F(PendingCallsTest, AWithheldMessageIsSentOnceItIsWelcome) {
  const wire::StreamReply welcome = ReplyOf(wire::StreamReply::Kind::kLookup);
  const auto message = calls_.TakeWithheld(welcome, 10);
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->envelope, "withheld");
  EXPECT_FALSE(calls_.TakeWithheld(welcome, 10).has_value()) << "it has been sent";
  const auto finished = calls_.Receive(ReplyOf(wire::StreamReply::Kind::kUpdate), 20);
  ASSERT_TRUE(finished.has_value());
  EXPECT_EQ(finished->reply.status, absl::OkStatus());
  EXPECT_EQ(finished->reply.sent_bytes, 40 + message->bytes());
  EXPECT_EQ(finished->reply.received_bytes, 30u);
}

TEST_F(PendingCallsTest, ARefusedQuestionFailsTheCall) {
  wire::StreamReply refusal = ReplyOf(wire::StreamReply::Kind::kError);
  refusal.status = absl::ResourceExhaustedError("no room");
  EXPECT_FALSE(calls_.TakeWithheld(refusal, 10).has_value());
  const auto finished = calls_.Receive(std::move(refusal), 10);
  ASSERT_TRUE(finished.has_value());
  EXPECT_EQ(finished->reply.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(finished->reply.sent_bytes, 40u);
}

TEST_F(PendingCallsTest, AnUpdateThatWasNotSentIsNotTakenForDone) {
  const wire::StreamReply done = ReplyOf(wire::StreamReply::Kind::kUpdate);
  EXPECT_FALSE(calls_.TakeWithheld(done, 10).has_value());
  const auto finished = calls_.Receive(done, 10);
  ASSERT_TRUE(finished.has_value());
  EXPECT_EQ(finished->reply.status.code(), absl::StatusCode::kInternal);
}

// The caller may change what its node has not read.
TEST_F(PendingCallsTest, ACallThatIsOverTakesItsFrameBack) {
  EXPECT_TRUE(seal_->is_whole());
  EXPECT_EQ(calls_.FailAll(absl::CancelledError("closed")).size(), 1u);
  EXPECT_FALSE(seal_->is_whole());
  const std::shared_ptr<wire::Seal> late = wire::Seal::Make();
  const absl::Time deadline = absl::UnixEpoch();
  calls_.Add(kSequence, {.call = NodeUpdate(), .deadline = deadline, .done = {}}, 40, std::nullopt,
             late);
  std::vector<FinishedCall> finished;
  calls_.Expire(deadline - absl::Seconds(1), finished);
  EXPECT_TRUE(late->is_whole());
  calls_.Expire(deadline, finished);
  EXPECT_EQ(finished.size(), 1u);
  EXPECT_FALSE(late->is_whole());
}

}  // namespace
}  // namespace embla::client
