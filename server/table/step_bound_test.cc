#include "server/table/step_bound.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/base/testing/status_matchers.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

TEST(StepBound, TheFirstStepIsAnyThatACheckpointMayName) {
  const StepBound bound;
  EXPECT_THAT(bound.Check(0, absl::UnixEpoch()), IsOk());
  EXPECT_THAT(bound.Check(5'000'000, absl::UnixEpoch()), IsOk());
  EXPECT_THAT(bound.Check(StepBound::kStepMax, absl::UnixEpoch()), IsOk());
  EXPECT_THAT(bound.Check(StepBound::kStepMax + 1, absl::UnixEpoch()),
              StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(bound.Check(kMost, absl::UnixEpoch()), StatusIs(Code::kInvalidArgument));
}

TEST(StepBound, LaterStepsAreAtMostAMillionAhead) {
  StepBound bound;
  const absl::Time now = absl::FromUnixSeconds(100);
  bound.Note(1000, now);
  EXPECT_THAT(bound.Check(1, now), IsOk());
  EXPECT_THAT(bound.Check(1000 + StepBound::kAheadMax, now), IsOk());
  EXPECT_THAT(bound.Check(1001 + StepBound::kAheadMax, now),
              StatusIs(Code::kInvalidArgument,
                       AllOf(HasSubstr("step 1049577 "), HasSubstr("beyond 1000,"))));
  bound.Note(7, now);
  EXPECT_EQ(bound.highest(), 1000u) << "another trainer's, which is behind";
}

TEST(StepBound, ATableThatWasNotTrainedForLongIsNotShut) {
  StepBound bound;
  const absl::Time now = absl::FromUnixSeconds(100);
  bound.Note(1000, now);
  const std::uint64_t far = 1000 + StepBound::kAheadMax + 60 * StepBound::kPerSecond;
  EXPECT_THAT(bound.Check(far, now + absl::Seconds(59)), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(bound.Check(far, now + absl::Seconds(60)), IsOk());
  EXPECT_THAT(bound.Check(far, now - absl::Hours(1)), StatusIs(Code::kInvalidArgument))
      << "a clock that went back";
  EXPECT_THAT(bound.Check(StepBound::kStepMax, absl::InfiniteFuture()),
              StatusIs(Code::kInvalidArgument))
      << "no overflow";
}

TEST(StepBound, BeginsAnewOnceNoIdIsLeft) {
  StepBound bound;
  bound.Note(StepBound::kStepMax, absl::UnixEpoch());
  bound.Reset();
  EXPECT_THAT(bound.Check(1, absl::UnixEpoch()), IsOk());
  bound.Note(1, absl::UnixEpoch());
  EXPECT_THAT(bound.Check(StepBound::kStepMax, absl::UnixEpoch()),
              StatusIs(Code::kInvalidArgument));
}

}  // namespace
}  // namespace embla
