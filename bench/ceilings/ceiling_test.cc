#include "bench/ceilings/ceiling.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/ceilings/messages.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::bench {
namespace {

using ::embla::testing::IsOk;

absl::StatusOr<std::unique_ptr<CeilingPeer>> StartPeer() {
  const char* const directory = std::getenv("EMBLA_BIN_DIR");
  if (directory == nullptr) return absl::NotFoundError("EMBLA_BIN_DIR is not set");
  return CeilingPeer::Start(std::string(directory) + "/embla-ceiling-peer");
}

TEST(CeilingRun, EveryTransportExchangesAllSizesAndDepths) {
  const auto peer = StartPeer();
  ASSERT_THAT(peer, IsOk());
  for (const auto make : {GrpcUnaryCeiling, GrpcStreamCeiling, SocketCeiling}) {
    const auto ceiling = make(**peer);
    ASSERT_THAT(ceiling, IsOk());
    for (const std::size_t reply_bytes : {std::size_t{0}, std::size_t{100}, std::size_t{3} << 20}) {
      for (const int in_flight : {1, 4}) {
        const auto seconds = (*ceiling)->Run({.request_bytes = 40'000,
                                              .reply_bytes = reply_bytes,
                                              .in_flight = in_flight,
                                              .requests = 10});
        ASSERT_THAT(seconds, IsOk()) << (*ceiling)->name();
        EXPECT_GT(*seconds, 0.0);
      }
    }
  }
}

TEST(CeilingRun, RowsAreGatheredAndSteppedAtThePeer) {
  const auto peer = StartPeer();
  ASSERT_THAT(peer, IsOk());
  for (const auto make : {GrpcUnaryCeiling, GrpcStreamCeiling, SocketCeiling}) {
    const auto ceiling = make(**peer);
    ASSERT_THAT(ceiling, IsOk());
    for (const Work work : {Work::kGather, Work::kStep}) {
      const std::size_t rows = 1000 * 16 * sizeof(float);
      EXPECT_THAT((*ceiling)->Run({.request_bytes = 10'000 + rows,
                                   .reply_bytes = rows,
                                   .in_flight = 4,
                                   .requests = 100,
                                   .work = work,
                                   .ids = 1000,
                                   .dim = 16}),
                  IsOk())
          << (*ceiling)->name();
    }
  }
}

TEST(CeilingRun, OtherRowsAreNoAnswer) {
  const Load load = {
      .request_bytes = 100, .reply_bytes = 40, .work = Work::kGather, .ids = 5, .dim = 2};
  const std::vector<std::vector<char>> requests = MakeRequests(load);
  ASSERT_GT(requests.size(), 1u);
  std::vector<float> reply;
  for (int i = 0; i < 5; ++i) {
    std::int64_t id = 0;
    std::memcpy(&id, requests[0].data() + sizeof(RequestHeader) + i * sizeof(id), sizeof(id));
    reply.insert(reply.end(), 2, static_cast<float>(id));
  }
  const std::span bytes(reinterpret_cast<const char*>(reply.data()), reply.size() * sizeof(float));
  EXPECT_TRUE(IsAnswered(load, requests[0], bytes));
  EXPECT_FALSE(IsAnswered(load, requests[1], bytes));
  reply.back() += 1.0f;
  EXPECT_FALSE(IsAnswered(load, requests[0], bytes));
}

}  // namespace
}  // namespace embla::bench
