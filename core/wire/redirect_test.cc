#include "core/wire/redirect.h"

#include <string>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/wire/status_codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::wire {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RedirectOfStatus, FindsWhatWasSent) {
  const Redirect redirect{"a:1", "a:2", "0123"};
  const grpc::Status status = RedirectStatus(redirect, "a standby");
  EXPECT_THAT(FromGrpc(status), StatusIs(absl::StatusCode::kUnavailable, "a standby"));
  EXPECT_EQ(RedirectOf(status), redirect);
}

TEST(RedirectOfStatus, FindsNoneInOtherAnswers) {
  EXPECT_EQ(RedirectOf(grpc::Status::OK), std::nullopt);
  EXPECT_EQ(RedirectOf({grpc::StatusCode::UNAVAILABLE, "away"}), std::nullopt);
  EXPECT_EQ(RedirectOf({grpc::StatusCode::UNAVAILABLE, "away", "\xff\xff"}), std::nullopt);
  const grpc::Status other(grpc::StatusCode::ABORTED, "no",
                           RedirectStatus({"a:1", "", ""}, "").error_details());
  EXPECT_EQ(RedirectOf(other), std::nullopt);
}

TEST(AddressesSplit, KeepsTheirOrder) {
  EXPECT_THAT(SplitAddresses("a:1,b:2,[::1]:3"), ElementsAre("a:1", "b:2", "[::1]:3"));
  EXPECT_THAT(SplitAddresses("a:1"), ElementsAre("a:1"));
  EXPECT_THAT(SplitAddresses("a:1,"), ElementsAre("a:1", ""));
}

TEST(CoordinatorChoiceLeave, GoesRoundTheList) {
  CoordinatorChoice choice({"a", "b", "c"});
  std::vector<std::string> asked;
  for (int i = 0; i < 4; ++i) {
    asked.push_back(choice.current());
    choice.Leave(asked.back(), "");
  }
  EXPECT_THAT(asked, ElementsAre("a", "b", "c", "a"));
}

TEST(CoordinatorChoiceLeave, FollowsTheLeaderAndComesBackToTheList) {
  CoordinatorChoice choice({"a", "b"});
  choice.Leave("a", "elsewhere");
  EXPECT_EQ(choice.current(), "elsewhere");
  choice.Leave("a", "");  // An answer to an earlier call.
  EXPECT_EQ(choice.current(), "elsewhere");
  choice.Leave("elsewhere", "");
  EXPECT_EQ(choice.current(), "b");
  choice.Leave("b", "b");  // It names itself.
  EXPECT_EQ(choice.current(), "a");
}

TEST(CoordinatorChoiceLeave, AsksTheOnlyOneAgain) {
  CoordinatorChoice choice({"a"});
  choice.Leave("a", "");
  EXPECT_EQ(choice.current(), "a");
}

TEST(OneClusterCheck, NamesTheTwo) {
  EXPECT_THAT(CheckOneCluster({{"a", "x"}, {"b", ""}, {"c", "x"}}, "--coordinator"), IsOk());
  EXPECT_THAT(CheckOneCluster({{"a", "x"}, {"b", ""}, {"c", "y"}}, "--coordinator"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--coordinator lists coordinators of two clusters"),
                             HasSubstr("a is of cluster x, c of y"))));
}

}  // namespace
}  // namespace embla::wire
