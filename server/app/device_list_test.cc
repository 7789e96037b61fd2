#include "server/app/device_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/text.h"

namespace embla {
namespace {

using ::testing::HasSubstr;

TEST(ParseDevices, SplitsTheNode) {
  const auto devices = ParseDevices("cpu:3", 1000);
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_EQ(*devices, std::vector<DeviceSpec>(3, {.kind = DeviceKind::kCpu, .memory_bytes = 1000}));
}

TEST(ParseDevices, SharesTheMemoryByDefault) {
  const std::int64_t one = ParseDevices("cpu:1", 0)->front().memory_bytes;
  const std::int64_t four = ParseDevices("cpu:4", 0)->front().memory_bytes;
  EXPECT_GT(one, 0);
  EXPECT_EQ(one / 4, four);
}

TEST(ParseDevices, SaysWhatIsMissingForGpus) {
  const auto devices = ParseDevices("gpu:0", 0);
  EXPECT_EQ(devices.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(devices.status()), HasSubstr("cpu:N"));
}

TEST(ParseDevices, RefusesWhatIsNoList) {
  for (const char* text : {"", "cpu", "cpu:", "cpu:0", "cpu:-1", "cpu:65", "cpu:2x", "tpu:1"}) {
    EXPECT_EQ(ParseDevices(text, 0).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(ParseBytes, KnowsUnits) {
  EXPECT_EQ(*ParseBytes("0"), 0);
  EXPECT_EQ(*ParseBytes("123"), 123);
  EXPECT_EQ(*ParseBytes("2K"), 2048);
  EXPECT_EQ(*ParseBytes("3MiB"), std::int64_t{3} << 20);
  EXPECT_EQ(*ParseBytes("64 gb"), std::int64_t{64} << 30);
  EXPECT_EQ(*ParseBytes("1TiB"), std::int64_t{1} << 40);
  for (const char* text : {"", "x", "-1", "1X", "1KK", "9999999999999T", "1 G x"}) {
    EXPECT_EQ(ParseBytes(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace embla
