#include "server/shard/session_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/testing/status_matchers.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

constexpr SessionId kSession{(std::uint64_t{5} << 32) + 1};
constexpr SessionId kOther{(std::uint64_t{5} << 32) + 2};

using KeyPtr = std::shared_ptr<const ClusterKey>;

KeyPtr NewKey() { return std::make_shared<const ClusterKey>(ClusterKey::Generate()); }
KeyPtr Joined(const ClusterKey& first, const ClusterKey& second) {
  return std::make_shared<const ClusterKey>(*ClusterKey::Parse(first.Format() + second.Format()));
}

class SessionGateTest : public ::testing::Test {
 protected:
  absl::Status Admit(std::uint64_t seq, std::uint64_t first_incomplete,
                     SessionId session = kSession) {
    return gate_.Admit(session, UpdateSeq{seq}, UpdateSeq{first_incomplete}, now_);
  }
  void Close(SessionId session) {
    ClosedSessions closed;
    closed.refused.Insert(session);
    gate_.Close(closed);
  }

  const KeyPtr key_ = NewKey();
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  SessionGate gate_;
};

using SessionGateVerify = SessionGateTest;

TEST_F(SessionGateVerify, TakesTheProofOfTheSessionAndNoOther) {
  gate_.SetKey(key_);
  const SessionProof proof = ProveSession(*key_, kSession);
  for (int round = 0; round < 2; ++round) {  // Computed, then remembered.
    EXPECT_THAT(gate_.Verify(kSession, proof), IsOk());
    for (const SessionProof& wrong :
         {SessionProof{}, ProveSession(*key_, kOther), ProveSession(*NewKey(), kSession)}) {
      EXPECT_THAT(gate_.Verify(kSession, wrong),
                  StatusIs(Code::kPermissionDenied,
                           AllOf(HasSubstr(absl::StrCat(ToInt(kSession))),
                                 HasSubstr("session_proof"), HasSubstr("connect again"))));
    }
    EXPECT_THAT(gate_.Verify(kOther, proof), StatusIs(Code::kPermissionDenied));
  }
}

TEST_F(SessionGateVerify, TakesBothKeysDuringAChangeAndTheOldOneNoMoreAfterwards) {
  gate_.SetKey(key_);
  const SessionProof by_old = ProveSession(*key_, kSession);
  ASSERT_THAT(gate_.Verify(kSession, by_old), IsOk());
  const KeyPtr next = NewKey();
  gate_.SetKey(Joined(*next, *key_));
  EXPECT_THAT(gate_.Verify(kSession, by_old), IsOk());
  EXPECT_THAT(gate_.Verify(kOther, ProveSession(*next, kOther)), IsOk());
  gate_.SetKey(next);
  EXPECT_THAT(gate_.Verify(kSession, by_old), StatusIs(Code::kPermissionDenied));
  EXPECT_THAT(gate_.Verify(kOther, ProveSession(*next, kOther)), IsOk());
}

TEST_F(SessionGateVerify, SaysNothingAboutClosing) {
  gate_.SetKey(key_);
  const SessionProof proof = ProveSession(*key_, kSession);
  Close(kSession);
  EXPECT_THAT(gate_.Verify(kSession, proof), IsOk());
  EXPECT_TRUE(gate_.IsClosed(kSession));
  EXPECT_THAT(gate_.Check(kSession), StatusIs(Code::kPermissionDenied, HasSubstr("connect again")));
}

TEST_F(SessionGateVerify, IsUnavailableUntilTheKeyIsKnown) {
  const SessionProof proof = ProveSession(*key_, kSession);
  EXPECT_THAT(gate_.Verify(kSession, proof), StatusIs(Code::kUnavailable, HasSubstr("key")));
  gate_.SetKey(key_);
  EXPECT_THAT(gate_.Verify(kSession, proof), IsOk());
}

using SessionGateAdmit = SessionGateTest;

TEST_F(SessionGateAdmit, RefusesAJumpAndNamesBothNumbers) {
  ASSERT_THAT(Admit(1, 1), IsOk());
  const std::uint64_t far = SessionGate::kSeqSlack + 2;
  EXPECT_THAT(Admit(far, far),
              StatusIs(Code::kInvalidArgument, AllOf(HasSubstr(absl::StrCat("seq ", far)),
                                                     HasSubstr("the last seq here was 1"))));
  EXPECT_THAT(Admit(2, 1), IsOk());
}

TEST_F(SessionGateAdmit, TakesWhatAClientMayHaveSentToOthersMeanwhile) {
  ASSERT_THAT(Admit(1, 1), IsOk());
  now_ += absl::Hours(1);  // 50,000 updates per second, to other nodes.
  EXPECT_THAT(Admit(180'000'000, 180'000'000), IsOk());
  EXPECT_THAT(Admit(180'000'000 + SessionGate::kSeqSlack, 180'000'000), IsOk());
  EXPECT_THAT(Admit(std::uint64_t{1} << 40, 180'000'000), StatusIs(Code::kInvalidArgument));
}

TEST_F(SessionGateAdmit, TakesAnyNumberThatASessionCanHaveReachedBeforeItCame) {
  EXPECT_THAT(Admit(std::uint64_t{1} << 40, 1), IsOk());
  EXPECT_THAT(Admit(SessionGate::kSeqMax + 1, 1, kOther), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Admit(UINT64_MAX, 1, kOther), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Admit(1, 1, kOther), IsOk());
}

TEST_F(SessionGateAdmit, TakesOldNumbersAndClocksThatGoBack) {
  ASSERT_THAT(Admit(1000, 990), IsOk());
  now_ -= absl::Hours(1);
  EXPECT_THAT(Admit(991, 990), IsOk());
  EXPECT_THAT(Admit(1001, 990), IsOk());
  EXPECT_THAT(Admit(5, 6), StatusIs(Code::kInvalidArgument));
}

TEST_F(SessionGateAdmit, GoesOnWhereTheProcessBeforeWas) {
  gate_.Recall(kSession, UpdateSeq{1'000'000'000}, now_);
  EXPECT_THAT(Admit(1'000'000'001, 1'000'000'001), IsOk());
  EXPECT_THAT(Admit(std::uint64_t{1} << 40, 1), StatusIs(Code::kInvalidArgument));
}

// Sessions that are granted and never close, as of trainers without a name.
TEST_F(SessionGateTest, RemembersABoundedNumberOfSessions) {
  for (std::uint64_t n = 1; n <= SessionGate::kSessionsMax + 1000; ++n) {
    ASSERT_THAT(Admit(1, 1, SessionId{ToInt(kSession) + n}), IsOk());
  }
  EXPECT_EQ(gate_.seen().size(), SessionGate::kSessionsMax);
}

}  // namespace
}  // namespace embla
