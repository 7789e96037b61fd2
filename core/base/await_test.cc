#include "core/base/testing/await.h"

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/testing/status_matchers.h"

namespace embla::testing {
namespace {

using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(AwaitFor, ReturnsOnceAnotherThreadMadeTheConditionTrue) {
  std::atomic<bool> done{false};
  std::thread other([&] { done.store(true); });
  EXPECT_TRUE(AwaitFor([&] { return done.load(); }, absl::Seconds(10), "the other thread"));
  other.join();
}

TEST(AwaitFor, FailsTheTestWithItsWordsAtTheLimit) {
  EXPECT_NONFATAL_FAILURE(
      EXPECT_FALSE(AwaitFor([] { return false; }, absl::Milliseconds(1), "the sky falls")),
      "in vain: the sky falls");
}

TEST(StatusMatchers, TellCodesMessagesAndValues) {
  const absl::Status lost = absl::DataLossError("segment 7 is short");
  EXPECT_THAT(absl::OkStatus(), IsOk());
  EXPECT_THAT(lost, Not(IsOk()));
  EXPECT_THAT(lost, StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(lost, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("segment 7")));
  EXPECT_THAT(lost, Not(StatusIs(absl::StatusCode::kDataLoss, HasSubstr("segment 8"))));
  EXPECT_THAT(lost, Not(StatusIs(absl::StatusCode::kNotFound)));
  EXPECT_THAT(absl::StatusOr<int>(3), IsOkAndHolds(Gt(2)));
  EXPECT_THAT(absl::StatusOr<int>(3), Not(IsOkAndHolds(Gt(3))));
  EXPECT_THAT(absl::StatusOr<int>(lost), Not(IsOkAndHolds(Gt(0))));
  EXPECT_THAT(absl::StatusOr<int>(lost), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(StatusMatchers, AFailurePrintsTheStatus) {
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(absl::NotFoundError("no table 9"), IsOk()), "no table 9");
}

}  // namespace
}  // namespace embla::testing
