#include "client/transport/pending_calls.h"

#include <optional>
#include <utility>

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
               40, std::move(withheld));
  }

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

}  // namespace
}  // namespace embla::client
