#include "server/rpc/listen_address.h"

#include <gtest/gtest.h>

#include "core/base/testing/status_matchers.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;

TEST(ParseListenAddress, KnowsLoopback) {
  for (const char* text : {"127.0.0.1:0", "127.1.2.3:80", "localhost:65535", "[::1]:7",
                           "[::ffff:127.0.0.1]:7", "unix:/x"}) {
    const auto address = ParseListenAddress(text);
    ASSERT_THAT(address, IsOk());
    EXPECT_TRUE(address->loopback) << text;
  }
  for (const char* text :
       {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.com:1", "127.example.org:1",
        "127.0.0.1.example.org:1", "127.1:1", "[::ffff:10.0.0.1]:1"}) {
    const auto address = ParseListenAddress(text);
    ASSERT_THAT(address, IsOk());
    EXPECT_FALSE(address->loopback) << text;
  }
}

TEST(ParseListenAddress, RefusesWhatIsNone) {
  for (const char* text : {"", ":", "127.0.0.1", "127.0.0.1:", ":80", "host:-1", "host:65536",
                           "host:80x", "::1:80", "unix:"}) {
    EXPECT_EQ(ParseListenAddress(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(ParseListenAddress, WithPortKeepsTheHost) {
  EXPECT_EQ(ParseListenAddress("127.0.0.1:0")->WithPort(81), "127.0.0.1:81");
  EXPECT_EQ(ParseListenAddress("[::1]:0")->WithPort(81), "[::1]:81");
  EXPECT_EQ(ParseListenAddress("unix:/a/b")->WithPort(1), "unix:/a/b");
}

TEST(CheckListenAddress, InsecureAllowsOtherMachines) {
  EXPECT_EQ(CheckListenAddress("10.0.0.1:1", false).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(CheckListenAddress("10.0.0.1:1", true), IsOk());
  EXPECT_THAT(CheckListenAddress("unix:/x", false), IsOk());
}

}  // namespace
}  // namespace embla
