// Both ways to send data calls, against a plain server.
#include "client/transport/grpc_node_channel.h"

#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "client/transport/testing/plain_data_service.h"
#include "core/base/testing/status_matchers.h"

namespace embla::client {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint32_t kColumns = 16;

// A lookup of `count` ids from `first`, and where its answer goes.
struct Pending {
  std::vector<std::int64_t> ids;
  std::vector<float> rows;
  std::future<NodeReply> reply;

  bool Filled() const {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] != PlainDataService::Value(ids[i / kColumns], i % kColumns)) return false;
    }
    return true;
  }
};

NodeLookup LookupOf(Pending& pending, std::int64_t first, std::size_t count) {
  pending.ids.clear();
  for (std::size_t i = 0; i < count; ++i) pending.ids.push_back(first + i);
  pending.rows.assign(count * kColumns, -1.0f);
  NodeLookup request;
  request.ids = Buffer::Allocate(count * sizeof(std::int64_t));
  std::memcpy(request.ids.data(), pending.ids.data(), request.ids.size());
  LookupPart& part = request.batch.parts.emplace_back();
  part.table = TableId{1};
  part.pooling = ::embla::Pooling::kNone;
  part.column_end = kColumns;
  part.ids = request.ids.As<RowId>();
  request.reply_rows = std::as_writable_bytes(std::span(pending.rows));
  return request;
}

// A done function and the future it fills.
std::pair<NodeChannel::Done, std::future<NodeReply>> Promised() {
  auto promise = std::make_shared<std::promise<NodeReply>>();
  std::future<NodeReply> future = promise->get_future();
  return {[promise](NodeReply reply) { promise->set_value(std::move(reply)); }, std::move(future)};
}

class NodeChannelTest : public ::testing::TestWithParam<Transport> {
 protected:
  std::unique_ptr<NodeChannel> Connect(const std::string& address, std::size_t bytes = 1 << 26,
                                       int connections = 1) {
    return MakeGrpcNodeChannel(
        address,
        {.transport = GetParam(), .connections = connections, .in_flight_bytes_max = bytes},
        timer_);
  }

  static Pending Start(NodeChannel& channel, std::int64_t first = 5, std::size_t count = 100,
                       absl::Duration timeout = absl::Seconds(60)) {
    Pending pending;
    auto [done, reply] = Promised();
    pending.reply = std::move(reply);
    NodeLookup request = LookupOf(pending, first, count);
    channel.Lookup(std::move(request), absl::Now() + timeout, std::move(done));
    return pending;
  }

  // Until the server is reached, at most a minute.
  static absl::Status LookupUntilReached(NodeChannel& channel) {
    const absl::Time end = absl::Now() + absl::Seconds(60);
    absl::Status status;
    do {
      status = Start(channel).reply.get().status;
    } while (absl::IsUnavailable(status) && absl::Now() < end);
    return status;
  }

  PlainDataService service_;
  ThreadTimer timer_;
};

INSTANTIATE_TEST_SUITE_P(Transports, NodeChannelTest,
                         ::testing::Values(Transport::kStream, Transport::kUnary),
                         [](const auto& info) {
                           return info.param == Transport::kStream ? "Stream" : "Unary";
                         });

TEST_P(NodeChannelTest, LookupFillsTheRowsAndCountsBytes) {
  const PlainServer server(service_, "127.0.0.1:0");
  const auto channel = Connect(server.address());
  Pending pending = Start(*channel);
  const NodeReply reply = pending.reply.get();
  ASSERT_EQ(reply.status, absl::OkStatus());
  EXPECT_TRUE(pending.Filled());
  EXPECT_GE(reply.sent_bytes, 800u);
  EXPECT_GE(reply.received_bytes, 100u * kColumns * 4);
}

TEST_P(NodeChannelTest, UpdateArrivesAsItWasBuilt) {
  const PlainServer server(service_, "127.0.0.1:0");
  const auto channel = Connect(server.address());
  NodeUpdate request;
  request.batch = {.plan_version = PlanVersion{4},
                   .session = SessionId{5},
                   .seq = UpdateSeq{6},
                   .first_incomplete = UpdateSeq{3},
                   .step = 9,
                   .wire_dtype = DType::kFloat16,
                   .parts = {}};
  const std::int64_t ids[] = {11, 12};
  request.ids = Buffer::Allocate(sizeof(ids));
  std::memcpy(request.ids.data(), ids, sizeof(ids));
  request.row_sum_squares = Buffer::Allocate(8);
  std::memset(request.row_sum_squares.data(), 1, 8);
  request.gradients = Buffer::Allocate(2 * kColumns * 2);
  std::memset(request.gradients.data(), 2, request.gradients.size());
  UpdatePart& part = request.batch.parts.emplace_back();
  part.table = TableId{8};
  part.column_end = kColumns;
  part.ids = request.ids.As<RowId>();
  part.gradients = request.gradients.bytes();
  part.row_sum_squares = request.row_sum_squares.As<float>();
  part.clipped = true;
  auto [done, reply] = Promised();
  channel->Update(std::move(request), absl::Now() + absl::Seconds(60), std::move(done));
  ASSERT_EQ(reply.get().status, absl::OkStatus());
  const std::vector<v1::UpdateRequest> updates = service_.updates();
  ASSERT_EQ(updates.size(), 1u);
  const v1::UpdateRequest& update = updates[0];
  EXPECT_EQ(update.plan_version(), 4u);
  EXPECT_EQ(update.session(), 5u);
  EXPECT_EQ(update.seq(), 6u);
  EXPECT_EQ(update.first_incomplete(), 3u);
  EXPECT_EQ(update.step(), 9u);
  EXPECT_EQ(update.wire_dtype(), v1::WIRE_DTYPE_FP16);
  ASSERT_EQ(update.parts_size(), 1);
  EXPECT_EQ(update.parts(0).table_id(), 8u);
  EXPECT_EQ(update.parts(0).form(), v1::GRADIENT_FORM_ROWS);
  EXPECT_EQ(update.parts(0).ids_count(), 2u);
  EXPECT_TRUE(update.parts(0).has_row_sum_squares());
  EXPECT_TRUE(update.parts(0).clipped());
  EXPECT_EQ(update.ids(), std::string(reinterpret_cast<const char*>(ids), sizeof(ids)));
  EXPECT_EQ(update.row_sum_squares(), std::string(8, '\1'));
  EXPECT_EQ(update.gradients(), std::string(2 * kColumns * 2, '\2'));
}

TEST_P(NodeChannelTest, BorrowedGradientsTravelBetweenOthersAndAreNotReadAfterwards) {
  const PlainServer server(service_, "127.0.0.1:0");
  const auto channel = Connect(server.address());
  std::string first(3000, 'a');
  std::string last(5000, 'd');
  NodeUpdate request;
  request.gradients = Buffer::Allocate(700);
  std::memset(request.gradients.data(), 'b', 300);
  std::memset(request.gradients.data() + 300, 'c', 400);
  const std::span<const std::byte> own = request.gradients.bytes();
  for (const std::span<const std::byte> gradients :
       {std::as_bytes(std::span(first)), own.first(300), own.subspan(300),
        std::as_bytes(std::span(last))}) {
    request.batch.parts.emplace_back().gradients = gradients;
  }
  request.borrowed_bytes = first.size() + last.size();
  EXPECT_EQ(request.bytes(), 8700u);
  auto [done, reply] = Promised();
  channel->Update(std::move(request), absl::Now() + absl::Seconds(60), std::move(done));
  first.assign(first.size(), '?');
  last.assign(last.size(), '?');
  ASSERT_EQ(reply.get().status, absl::OkStatus());
  const std::vector<v1::UpdateRequest> updates = service_.updates();
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(updates[0].gradients(), std::string(3000, 'a') + std::string(300, 'b') +
                                        std::string(400, 'c') + std::string(5000, 'd'));
}

TEST_P(NodeChannelTest, AContributionArrivesAndItsRefusedUnitsComeBack) {
  const PlainServer server(service_, "127.0.0.1:0");
  const auto channel = Connect(server.address());
  v1::RefusedClaim refused;
  refused.mutable_units()->set_granule_begin(4);
  refused.mutable_units()->set_granule_end(6);
  refused.set_reason(v1::RefusedClaim::REASON_AGAIN);
  service_.SetRefusedClaim(refused);
  NodeUpdate request;
  request.batch.session = SessionId{5};
  request.batch.seq = UpdateSeq{6};
  request.batch.claim = {.table = TableId{8}, .rank = Rank{2}, .units = UnitSet({0, 1, 9})};
  auto [done, reply] = Promised();
  channel->Update(std::move(request), absl::Now() + absl::Seconds(60), std::move(done));
  const NodeReply answered = reply.get();
  ASSERT_EQ(answered.status, absl::OkStatus());
  ASSERT_EQ(answered.refused_claims.size(), 1u);
  EXPECT_EQ(answered.refused_claims[0].units, (UnitSet::Run{0, 4, 6}));
  EXPECT_EQ(answered.refused_claims[0].reason, RefusedClaim::Reason::kAgain);
  const std::vector<v1::UpdateRequest> updates = service_.updates();
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(updates[0].claim().table_id(), 8u);
  EXPECT_EQ(updates[0].claim().rank(), 2u);
  EXPECT_EQ(updates[0].claim().units(0).granule_end(), 9u);
}

TEST_P(NodeChannelTest, ALookupOfUnitsThatHaveMovedSaysWhereTheyAre) {
  const PlainServer server(service_, "127.0.0.1:0");
  const auto channel = Connect(server.address());
  v1::RefusedUnit refused;
  refused.set_row_end(10);
  refused.set_reason(v1::RefusedUnit::REASON_MOVED);
  refused.set_column_end(kColumns);
  refused.set_owner(3);
  refused.set_epoch(7);
  service_.SetRefusedUnit(refused);
  service_.SetFrameBytes(100 * kColumns * 4 / 2);
  Pending pending = Start(*channel);
  const NodeReply reply = pending.reply.get();
  ASSERT_EQ(reply.status, absl::OkStatus());
  EXPECT_EQ(reply.plan_version, PlanVersion{6});
  ASSERT_EQ(reply.refused.size(), 1u);
  EXPECT_EQ(reply.refused[0].reason, RefusedUnit::Reason::kMoved);
  EXPECT_EQ(reply.refused[0].row_end, 10);
  EXPECT_EQ(reply.refused[0].column_end, kColumns);
  EXPECT_EQ(reply.refused[0].owner, NodeId{3});
  EXPECT_EQ(reply.refused[0].epoch, 7u);
}

TEST_P(NodeChannelTest, ErrorsOfTheNodeKeepCodeAndWords) {
  const PlainServer server(service_, "127.0.0.1:0");
  const auto channel = Connect(server.address());
  service_.SetStatus({grpc::StatusCode::OUT_OF_RANGE, "id 9 of table 1"});
  const NodeReply reply = Start(*channel).reply.get();
  EXPECT_EQ(reply.status, absl::OutOfRangeError("id 9 of table 1"));
}

TEST_P(NodeChannelTest, ReplyOfAnotherSizeIsInternalAndTheNextOneIsFine) {
  const PlainServer server(service_, "127.0.0.1:0");
  const auto channel = Connect(server.address());
  for (const int extra : {4, -4, -100 * static_cast<int>(kColumns) * 4}) {
    service_.SetExtraBytes(extra);
    Pending pending = Start(*channel);
    EXPECT_EQ(pending.reply.get().status.code(), absl::StatusCode::kInternal) << extra;
  }
  service_.SetExtraBytes(0);
  Pending pending = Start(*channel);
  EXPECT_EQ(pending.reply.get().status, absl::OkStatus());
  EXPECT_TRUE(pending.Filled());
}

TEST_P(NodeChannelTest, DeadServerIsUnavailableAndARestartedOneIsFound) {
  std::string address;
  std::unique_ptr<NodeChannel> channel;
  {
    const PlainServer server(service_, "127.0.0.1:0");
    address = server.address();
    channel = Connect(address);
    ASSERT_EQ(Start(*channel).reply.get().status, absl::OkStatus());
  }
  EXPECT_EQ(Start(*channel).reply.get().status.code(), absl::StatusCode::kUnavailable);
  const PlainServer server(service_, address);
  EXPECT_EQ(LookupUntilReached(*channel), absl::OkStatus());
}

TEST_P(NodeChannelTest, SilentServerIsGivenUpAtTheDeadline) {
  const PlainServer server(service_, "127.0.0.1:0");
  const auto channel = Connect(server.address());
  service_.Hold();
  Pending pending = Start(*channel, 5, 100, absl::Milliseconds(50));
  EXPECT_EQ(pending.reply.get().status.code(), absl::StatusCode::kDeadlineExceeded);
  // The late answer goes nowhere, and does no harm.
  pending.rows.clear();
  pending.rows.shrink_to_fit();
  service_.Release();
  Pending next = Start(*channel);
  EXPECT_EQ(next.reply.get().status, absl::OkStatus());
  EXPECT_TRUE(next.Filled());
}

TEST_P(NodeChannelTest, BytesInFlightAreBounded) {
  const PlainServer server(service_, "127.0.0.1:0");
  // Room for one request at a time.
  const auto channel = Connect(server.address(), 1000);
  std::vector<Pending> pending;
  for (int i = 0; i < 20; ++i) pending.push_back(Start(*channel, i));
  for (Pending& one : pending) {
    EXPECT_EQ(one.reply.get().status, absl::OkStatus());
    EXPECT_TRUE(one.Filled());
  }
  EXPECT_EQ(service_.in_flight_max(), 1);
}

TEST_P(NodeChannelTest, RequestThatWaitsTooLongIsNotSent) {
  const PlainServer server(service_, "127.0.0.1:0");
  const auto channel = Connect(server.address(), 1000);
  service_.Hold();
  Pending first = Start(*channel);
  service_.AwaitRequests(1);
  Pending second = Start(*channel, 5, 100, absl::Milliseconds(20));
  EXPECT_EQ(second.reply.get().status.code(), absl::StatusCode::kDeadlineExceeded);
  service_.Release();
  EXPECT_EQ(first.reply.get().status, absl::OkStatus());
  EXPECT_EQ(service_.in_flight_max(), 1);
}

TEST_P(NodeChannelTest, SeveralConnectionsShareTheWork) {
  const PlainServer server(service_, "127.0.0.1:0");
  const auto channel = Connect(server.address(), 1 << 26, 3);
  std::vector<Pending> pending;
  for (int i = 0; i < 30; ++i) pending.push_back(Start(*channel, i));
  for (Pending& one : pending) EXPECT_EQ(one.reply.get().status, absl::OkStatus());
  EXPECT_EQ(service_.streams(), GetParam() == Transport::kStream ? 3 : 0);
}

TEST_P(NodeChannelTest, UnixSocketsAreReached) {
  const std::string path = absl::StrCat(::testing::TempDir(), "embla_", getpid(), "_",
                                        static_cast<int>(GetParam()), ".sock");
  const PlainServer server(service_, "unix:" + path);
  const auto channel = Connect(server.address());
  EXPECT_EQ(Start(*channel).reply.get().status, absl::OkStatus());
  unlink(path.c_str());
}

TEST_P(NodeChannelTest, CloseFailsCallsInFlightAndLaterOnes) {
  const PlainServer server(service_, "127.0.0.1:0");
  const auto channel = Connect(server.address(), 1000);
  service_.Hold();
  Pending in_flight = Start(*channel);
  Pending waiting = Start(*channel);
  service_.AwaitRequests(1);
  channel->Close();
  EXPECT_THAT(in_flight.reply.get().status, Not(IsOk()));
  EXPECT_EQ(waiting.reply.get().status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Start(*channel).reply.get().status.code(), absl::StatusCode::kUnavailable);
  service_.Release();
}

TEST_P(NodeChannelTest, ReadRowsHandsOverEveryBlock) {
  const PlainServer server(service_, "127.0.0.1:0");
  const auto channel = Connect(server.address());
  std::vector<std::string> blocks;
  const auto sink = [&](std::span<const std::byte> block) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % 8, 0u);
    blocks.emplace_back(reinterpret_cast<const char*>(block.data()), block.size());
    return blocks.size() < 3 ? absl::OkStatus() : absl::AbortedError("enough");
  };
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  const NodeChannel::RowsQuery two{.table = TableId{3}, .row_begin = 8, .row_end = 10};
  ASSERT_EQ(channel->ReadRows(two, deadline, sink), absl::OkStatus());
  EXPECT_THAT(blocks, ::testing::ElementsAre("row 8 of 3", "row 9 of 3"));
  EXPECT_EQ(channel->ReadRows(two, deadline, sink), absl::AbortedError("enough"));
  service_.SetStatus({grpc::StatusCode::NOT_FOUND, "no table 3"});
  blocks.clear();
  EXPECT_EQ(channel->ReadRows(two, deadline, sink), absl::NotFoundError("no table 3"));
}

class StreamTest : public NodeChannelTest {};
INSTANTIATE_TEST_SUITE_P(Transports, StreamTest, ::testing::Values(Transport::kStream));

TEST_P(StreamTest, RepliesAreMatchedWhateverTheirOrder) {
  service_.SetReverse(8);
  service_.SetFrameBytes(1000);  // Rows are cut anywhere.
  const PlainServer server(service_, "127.0.0.1:0");
  const auto channel = Connect(server.address());
  std::vector<Pending> pending;
  for (int i = 0; i < 64; ++i) pending.push_back(Start(*channel, 1000 * i, 50 + i));
  for (Pending& one : pending) {
    ASSERT_EQ(one.reply.get().status, absl::OkStatus());
    EXPECT_TRUE(one.Filled());
  }
  EXPECT_EQ(service_.streams(), 1);
}

TEST_P(StreamTest, BrokenStreamFailsItsCallsAndAnotherOneIsOpened) {
  service_.SetRequestsPerStream(3);
  const PlainServer server(service_, "127.0.0.1:0");
  const auto channel = Connect(server.address());
  EXPECT_EQ(Start(*channel).reply.get().status, absl::OkStatus());
  EXPECT_EQ(Start(*channel).reply.get().status, absl::OkStatus());
  const absl::Status broken = Start(*channel).reply.get().status;
  EXPECT_EQ(broken.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(broken.message()), HasSubstr("as the test wants it"));
  EXPECT_EQ(Start(*channel).reply.get().status, absl::OkStatus());
  EXPECT_EQ(service_.streams(), 2);
}

TEST_P(StreamTest, ANodeThatHasRefusedIsAskedBeforeGradientsTravel) {
  constexpr std::size_t kGradientBytes = std::size_t{256} << 10;
  const PlainServer server(service_, "127.0.0.1:0");
  const auto channel = Connect(server.address());
  const auto update = [&](std::size_t bytes) {
    NodeUpdate request;
    request.gradients = Buffer::Allocate(bytes);
    std::memset(request.gradients.data(), 7, bytes);
    auto [done, reply] = Promised();
    channel->Update(std::move(request), absl::Now() + absl::Seconds(60), std::move(done));
    return reply.get();
  };
  const auto refusal = [](const NodeReply& reply) {
    return absl::IsResourceExhausted(reply.status);
  };
  EXPECT_EQ(update(kGradientBytes).status, absl::OkStatus());
  EXPECT_GT(service_.last_bytes(), kGradientBytes);

  service_.SetStatus({grpc::StatusCode::RESOURCE_EXHAUSTED, "no room"});
  EXPECT_TRUE(refusal(update(kGradientBytes)));
  EXPECT_GT(service_.last_bytes(), kGradientBytes) << "nobody could know";
  const NodeReply asked = update(kGradientBytes);
  EXPECT_TRUE(refusal(asked));
  EXPECT_LT(service_.last_bytes(), 1000u);
  EXPECT_LT(asked.sent_bytes, 1000u);
  EXPECT_TRUE(refusal(update(1000)));
  EXPECT_GT(service_.last_bytes(), 1000u) << "too small to ask for";

  service_.SetStatus(grpc::Status::OK);
  const NodeReply sent = update(kGradientBytes);
  EXPECT_EQ(sent.status, absl::OkStatus());
  EXPECT_GT(sent.sent_bytes, kGradientBytes);
  ASSERT_EQ(service_.updates().size(), 2u);
  EXPECT_EQ(service_.updates()[1].gradients(), std::string(kGradientBytes, 7));
}

TEST_P(StreamTest, DestructorWaitsForCallsInFlight) {
  const PlainServer server(service_, "127.0.0.1:0");
  auto channel = Connect(server.address());
  service_.Hold();
  Pending pending = Start(*channel);
  service_.AwaitRequests(1);
  channel.reset();
  EXPECT_EQ(pending.reply.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  service_.Release();
}

}  // namespace
}  // namespace embla::client
