#include "core/base/failpoint.h"

#include "gtest/gtest.h"

namespace embla {
namespace {

class FailpointTest : public testing::Test {
 protected:
  void TearDown() override { ClearFailpoints(); }
};

TEST_F(FailpointTest, IsOffUnlessSet) {
  EXPECT_TRUE(Failpoint("disk").ok());
  SetFailpoint("network", FailpointAction::kError);
  EXPECT_TRUE(Failpoint("disk").ok());
}

TEST_F(FailpointTest, FailsAtItsHitAndOnlyThere) {
  SetFailpoint("disk", FailpointAction::kError, 3);
  EXPECT_TRUE(Failpoint("disk").ok());
  EXPECT_TRUE(Failpoint("disk").ok());
  EXPECT_EQ(Failpoint("disk").code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Failpoint("disk").ok());
  EXPECT_EQ(FailpointUses("disk"), 4u);
}

TEST_F(FailpointTest, ReadsTheTextOfTheEnvironmentVariable) {
  ASSERT_TRUE(SetFailpoints("disk=error@2;net=error;").ok());
  EXPECT_TRUE(Failpoint("disk").ok());
  EXPECT_FALSE(Failpoint("disk").ok());
  EXPECT_FALSE(Failpoint("net").ok());
}

TEST_F(FailpointTest, RefusesMalformedTextAndSetsNothing) {
  for (const char* const text : {"disk", "disk=", "disk=explode", "=error", "disk=error@0",
                                 "disk=error@x", "disk=error@", "net=error;disk"}) {
    EXPECT_EQ(SetFailpoints(text).code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_TRUE(Failpoint("net").ok());
}

TEST_F(FailpointTest, CrashEndsTheProcess) {
  EXPECT_EXIT(
      {
        SetFailpoint("disk", FailpointAction::kCrash);
        static_cast<void>(Failpoint("disk"));
      },
      testing::ExitedWithCode(86), "");
}

}  // namespace
}  // namespace embla
