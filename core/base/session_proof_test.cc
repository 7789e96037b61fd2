#include "core/base/session_proof.h"

#include <gtest/gtest.h>

#include "core/base/cluster_key.h"

namespace embla {
namespace {

TEST(SessionProof, IsOfOneSessionAndOneKey) {
  const ClusterKey key = ClusterKey::Generate();
  const SessionId session{(std::uint64_t{7} << 32) + 1};
  const SessionProof proof = ProveSession(key, session);
  EXPECT_TRUE(IsProofOf(key, session, proof));
  EXPECT_FALSE(IsProofOf(key, SessionId{ToInt(session) + 1}, proof));
  EXPECT_FALSE(IsProofOf(key, SessionId{1}, proof));
  EXPECT_FALSE(IsProofOf(ClusterKey::Generate(), session, proof));
  EXPECT_FALSE(IsProofOf(key, session, {}));
}

TEST(SessionProof, IsValidByBothKeysWhileTheKeyIsChanged) {
  const ClusterKey old_key = ClusterKey::Generate();
  const ClusterKey both = *ClusterKey::Parse(ClusterKey::Generate().Format() + old_key.Format());
  EXPECT_TRUE(IsProofOf(both, SessionId{5}, ProveSession(old_key, SessionId{5})));
  EXPECT_TRUE(IsProofOf(both, SessionId{5}, ProveSession(both, SessionId{5})));
  EXPECT_FALSE(IsProofOf(old_key, SessionId{5}, ProveSession(both, SessionId{5})));
}

}  // namespace
}  // namespace embla
