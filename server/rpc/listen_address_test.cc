#include "server/rpc/listen_address.h"

#include <gtest/gtest.h>

namespace embla {
namespace {

TEST(ParseListenAddress, KnowsLoopback) {
  for (const char* text : {"127.0.0.1:0", "127.1.2.3:80", "localhost:65535", "[::1]:7",
                           "[::ffff:127.0.0.1]:7", "unix:/x"}) {
    const auto address = ParseListenAddress(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_TRUE(address->loopback) << text;
  }
  for (const char* text :
       {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.com:1", "127.example.org:1",
        "127.0.0.1.example.org:1", "127.1:1", "[::ffff:10.0.0.1]:1"}) {
    const auto address = ParseListenAddress(text);
    ASSERT_TRUE(address.ok()) << address.status();
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
  EXPECT_TRUE(CheckListenAddress("10.0.0.1:1", true).ok());
  EXPECT_TRUE(CheckListenAddress("unix:/x", false).ok());
}

}  // namespace
}  // namespace embla
