#include "core/base/failpoint.h"

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

class FailpointTest : public ::testing::Test {
 protected:
  void TearDown() override { ClearFailpoints(); }
};

TEST_F(FailpointTest, IsOffUnlessSet) {
  EXPECT_THAT(Failpoint("disk"), IsOk());
  SetFailpoint("network", FailpointAction::kError);
  EXPECT_THAT(Failpoint("disk"), IsOk());
}

TEST_F(FailpointTest, FailsAtItsHitAndOnlyThere) {
  SetFailpoint("disk", FailpointAction::kError, 3);
  EXPECT_THAT(Failpoint("disk"), IsOk());
  EXPECT_THAT(Failpoint("disk"), IsOk());
  EXPECT_EQ(Failpoint("disk").code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Failpoint("disk"), IsOk());
  EXPECT_EQ(FailpointUses("disk"), 4u);
}

TEST_F(FailpointTest, ReadsTheTextOfTheEnvironmentVariable) {
  ASSERT_THAT(SetFailpoints("disk=error@2;net=error;"), IsOk());
  EXPECT_THAT(Failpoint("disk"), IsOk());
  EXPECT_THAT(Failpoint("disk"), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("disk")));
  EXPECT_THAT(Failpoint("net"), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("net")));
}

TEST_F(FailpointTest, RefusesMalformedTextAndSetsNothing) {
  for (const char* const text : {"disk", "disk=", "disk=explode", "=error", "disk=error@0",
                                 "disk=error@x", "disk=error@", "net=error;disk"}) {
    EXPECT_EQ(SetFailpoints(text).code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_THAT(Failpoint("net"), IsOk());
}

TEST_F(FailpointTest, CrashEndsTheProcess) {
  EXPECT_EXIT(
      {
        SetFailpoint("disk", FailpointAction::kCrash);
        static_cast<void>(Failpoint("disk"));
      },
      ::testing::ExitedWithCode(86), "");
}

}  // namespace
}  // namespace embla
