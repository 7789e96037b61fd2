#include "server/rpc/stream_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/generic/generic_stub.h>

#include "core/base/testing/status_matchers.h"
#include "server/rpc/data_fixture.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;

class StreamCallTest : public DataFixture {
 protected:
  using Stream = grpc::ClientReaderWriter<v1::StreamRequest, v1::StreamReply>;

  static v1::StreamRequest Request(std::uint64_t sequence, v1::LookupRequest lookup) {
    v1::StreamRequest request;
    request.set_sequence(sequence);
    *request.mutable_lookup() = std::move(lookup);
    return request;
  }

  grpc::ClientContext context_;
};

TEST_F(StreamCallTest, ManyInFlightAreAnsweredBySequence) {
  Start();
  node_.Hold();
  const std::unique_ptr<Stream> stream = stub_->Stream(&context_);
  constexpr std::uint64_t kRequests = 300;
  for (std::uint64_t i = 0; i < kRequests; ++i) {
    ASSERT_TRUE(stream->Write(Request(1000 + i, LookupOf({static_cast<std::int64_t>(i)}))));
  }
  ASSERT_TRUE(node_.Await([](const FakeShardNode& node) { return node.held() == kRequests; }));
  std::thread releaser([this] { node_.Release(); });
  std::map<std::uint64_t, std::string> rows;
  v1::StreamReply reply;
  while (rows.size() < kRequests && stream->Read(&reply)) {
    EXPECT_EQ(reply.code(), 0);
    EXPECT_FALSE(reply.more());
    rows[reply.sequence()] = reply.lookup().rows();
  }
  releaser.join();
  ASSERT_EQ(rows.size(), kRequests);
  for (std::uint64_t i = 0; i < kRequests; ++i) {
    EXPECT_EQ(rows[1000 + i], RowsOf({static_cast<std::int64_t>(i)}));
  }
  stream->WritesDone();
  EXPECT_FALSE(stream->Read(&reply));
  EXPECT_THAT(stream->Finish(), IsOk());
}

// Replies come from another thread while requests are read and decoded: none may be lost, mixed up
// or overtaken.
TEST_F(StreamCallTest, RepliesOfAnotherThreadDoNotDisturbTheReading) {
  Start();
  node_.Hold();
  const std::unique_ptr<Stream> stream = stub_->Stream(&context_);
  constexpr std::uint64_t kRequests = 3000;
  std::atomic<bool> done = false;
  std::thread answerer([&] {
    while (!done) {
      node_.Release();
      node_.Hold();
    }
    node_.Release();
  });
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < kRequests; ++i) {
      if (!stream->Write(Request(i, LookupOf({static_cast<std::int64_t>(i)})))) break;
    }
  });
  std::set<std::uint64_t> answered;
  v1::StreamReply reply;
  while (answered.size() < kRequests && stream->Read(&reply)) {
    EXPECT_EQ(reply.code(), 0) << reply.message();
    EXPECT_EQ(reply.lookup().rows(), RowsOf({static_cast<std::int64_t>(reply.sequence())}));
    EXPECT_TRUE(answered.insert(reply.sequence()).second) << reply.sequence();
  }
  done = true;
  writer.join();
  answerer.join();
  EXPECT_EQ(answered.size(), kRequests);
}

TEST_F(StreamCallTest, LargeRepliesComeInFrames) {
  Start();
  const std::unique_ptr<Stream> stream = stub_->Stream(&context_);
  std::vector<std::int64_t> ids(3000);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
  v1::LookupRequest lookup = LookupOf(ids, 64);
  lookup.set_frame_bytes_max(65'536);
  ASSERT_TRUE(stream->Write(Request(1, lookup)));
  std::string rows;
  int frames = 0;
  v1::StreamReply reply;
  do {
    ASSERT_TRUE(stream->Read(&reply));
    EXPECT_EQ(reply.sequence(), 1u);
    EXPECT_LE(reply.lookup().rows().size(), 65'536u);
    rows += reply.lookup().rows();
    ++frames;
  } while (reply.more());
  EXPECT_EQ(frames, 12);  // 3000 * 256 bytes.
  EXPECT_TRUE(rows == RowsOf(ids, 64));
}

TEST_F(StreamCallTest, UpdatesAndErrorsComeUnderTheirSequence) {
  Start();
  const std::unique_ptr<Stream> stream = stub_->Stream(&context_);
  v1::StreamRequest update;
  update.set_sequence(1);
  *update.mutable_update() = UpdateOf(7, 2);
  v1::StreamRequest malformed = Request(2, LookupOf({1}));
  malformed.mutable_lookup()->clear_ids();
  v1::StreamRequest unknown = Request(3, LookupOf({1}));
  unknown.mutable_lookup()->mutable_parts(0)->set_table_id(404);
  v1::StreamRequest empty;
  empty.set_sequence(4);
  for (const v1::StreamRequest& request : {update, malformed, unknown, empty}) {
    ASSERT_TRUE(stream->Write(request));
  }
  std::map<std::uint64_t, v1::StreamReply> replies;
  v1::StreamReply reply;
  while (replies.size() < 4 && stream->Read(&reply)) replies[reply.sequence()] = reply;
  EXPECT_TRUE(replies[1].update().duplicate());
  EXPECT_EQ(replies[2].code(), static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT));
  EXPECT_THAT(replies[2].message(), HasSubstr("`ids`"));
  EXPECT_EQ(replies[3].code(), static_cast<int>(grpc::StatusCode::NOT_FOUND));
  EXPECT_EQ(replies[4].code(), static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT));
}

TEST_F(StreamCallTest, TheDeadlineOfARequestReachesTheNode) {
  Start({.deadline_default = absl::Hours(1)});
  const std::unique_ptr<Stream> stream = stub_->Stream(&context_);
  v1::StreamRequest request = Request(1, LookupOf({1}));
  request.set_deadline_ms(120'000);
  v1::StreamReply reply;
  ASSERT_TRUE(stream->Write(request) && stream->Read(&reply));
  EXPECT_LT(node_.last_deadline(), Clock::Real().Now() + absl::Minutes(3));
}

TEST_F(StreamCallTest, TakesNoMoreRequestsThanTheLimit) {
  Start({.stream_requests_max = 4});
  node_.Hold();
  const std::unique_ptr<Stream> stream = stub_->Stream(&context_);
  for (std::uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(stream->Write(Request(i, LookupOf({1}))));
  ASSERT_TRUE(node_.Await([](const FakeShardNode& node) { return node.held() == 4; }));
  // The first four must be answered and read before the others are taken.
  node_.Release();
  std::set<std::uint64_t> answered;
  v1::StreamReply reply;
  while (answered.size() < 10 && stream->Read(&reply)) answered.insert(reply.sequence());
  EXPECT_EQ(answered.size(), 10u);
}

TEST_F(StreamCallTest, StreamsTogetherHoldNoMoreThanTheLimit) {
  Start({.in_flight = {.strangers_bytes_max = 10'000}});
  node_.Hold();
  const std::unique_ptr<Stream> first = stub_->Stream(&context_);
  // 9000 bytes of reply, and its request.
  ASSERT_TRUE(first->Write(Request(1, LookupOf(std::vector<std::int64_t>(9), 250))));
  ASSERT_TRUE(node_.Await([](const FakeShardNode& node) { return node.held() == 1; }));
  grpc::ClientContext context;
  const std::unique_ptr<Stream> second = stub_->Stream(&context);
  v1::StreamReply reply;
  ASSERT_TRUE(second->Write(Request(2, LookupOf({1}, 250))));
  ASSERT_TRUE(second->Read(&reply));
  EXPECT_EQ(reply.code(), static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED));
  EXPECT_GE(reply.retry_after_ms(), 10u);
  node_.Release();
  ASSERT_TRUE(first->Read(&reply));
  EXPECT_EQ(reply.code(), 0);
}

TEST_F(StreamCallTest, AClientThatDoesNotReadItsRepliesIsNotRead) {
  Start({.stream_bytes_max = std::size_t{8} << 20});
  const std::unique_ptr<Stream> stream = stub_->Stream(&context_);
  // 200 replies of 1 MiB: far more than flow-control windows and the limit together.
  constexpr std::uint64_t kRequests = 200;
  const std::vector<std::int64_t> ids(1024, 3);
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < kRequests; ++i) {
      if (!stream->Write(Request(i, LookupOf(ids, 256)))) break;
    }
  });
  // The node is idle once the stream is full; what it took by then is bounded.
  ASSERT_TRUE(node_.Await([](const FakeShardNode& node) { return node.taken() >= 8; }));
  v1::StreamReply reply;
  std::uint64_t read = 0;
  std::size_t ahead_max = 0;
  for (; read < kRequests && stream->Read(&reply); ++read) {
    ASSERT_TRUE(node_.Await([&](const FakeShardNode& node) {
      ahead_max = std::max<std::size_t>(ahead_max, node.taken() - read);
      return true;
    }));
  }
  writer.join();
  EXPECT_EQ(read, kRequests);
  EXPECT_LT(ahead_max, 60u);
}

TEST_F(StreamCallTest, BytesThatAreNoRequestEndTheStream) {
  Start();
  grpc::GenericStub generic(channel_);
  grpc::CompletionQueue queue;
  const auto stream = generic.PrepareCall(&context_, "/embla.v1.DataService/Stream", &queue);
  void* tag = nullptr;
  bool ok = false;
  const auto wait = [&] { return queue.Next(&tag, &ok) && ok; };
  stream->StartCall(nullptr);
  ASSERT_TRUE(wait());
  grpc::Slice junk(std::string("\x12\xff\xff\xff\xff\x0f", 6));
  stream->Write(grpc::ByteBuffer(&junk, 1), nullptr);
  ASSERT_TRUE(wait());
  grpc::Status status;
  stream->Finish(&status, nullptr);
  ASSERT_TRUE(wait());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::LookupReply reply;
  EXPECT_THAT(Lookup(LookupOf({1}), reply), IsOk());
}

TEST_F(StreamCallTest, DrainAnswersWhatIsInFlightAndEndsWithUnavailable) {
  Start();
  node_.Hold();
  const std::unique_ptr<Stream> stream = stub_->Stream(&context_);
  ASSERT_TRUE(stream->Write(Request(1, LookupOf({5}))));
  ASSERT_TRUE(node_.Await([](const FakeShardNode& node) { return node.held() == 1; }));
  service_->Drain();
  node_.Release();
  v1::StreamReply reply;
  ASSERT_TRUE(stream->Read(&reply));
  EXPECT_EQ(reply.lookup().rows(), RowsOf({5}));
  EXPECT_FALSE(stream->Read(&reply));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);

  grpc::ClientContext late;
  EXPECT_EQ(stub_->Stream(&late)->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(StreamCallTest, AClientThatGoesAwayLeavesRequestsToEndByThemselves) {
  Start();
  node_.Hold();
  {
    const std::unique_ptr<Stream> stream = stub_->Stream(&context_);
    for (std::uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(stream->Write(Request(i, LookupOf({5}))));
    ASSERT_TRUE(node_.Await([](const FakeShardNode& node) { return node.held() == 20; }));
    context_.TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  node_.Release();
  server_->Shutdown(kTestWaitMax);
  EXPECT_EQ(pool_.retained_bytes() > 0, true);  // Request memory went back to the pool.
}

}  // namespace
}  // namespace embla
