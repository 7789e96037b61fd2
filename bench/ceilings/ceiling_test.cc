#include "bench/ceilings/ceiling.h"

#include <cstdlib>
#include <memory>
#include <string>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::bench {
namespace {

using ::embla::testing::IsOk;

TEST(CeilingRun, EveryTransportExchangesAllSizesAndDepths) {
  const char* const directory = std::getenv("EMBLA_BIN_DIR");
  ASSERT_NE(directory, nullptr);
  const auto peer = CeilingPeer::Start(std::string(directory) + "/embla-ceiling-peer");
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

}  // namespace
}  // namespace embla::bench
