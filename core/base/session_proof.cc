#include "core/base/session_proof.h"

#include <algorithm>
#include <string>

#include "core/base/cluster_key.h"

namespace embla {
namespace {

constexpr std::string_view kLabel = "embla session";

}  // namespace

SessionProof ProveSession(const ClusterKey& key, SessionId session) {
  const std::string signature = key.Sign(kLabel, {LittleEndianPart(ToInt(session))});
  SessionProof proof;
  std::copy_n(signature.begin(), proof.size(), proof.begin());
  return proof;
}

bool IsProofOf(const ClusterKey& key, SessionId session, const SessionProof& proof) {
  return key.Verify(kLabel, {LittleEndianPart(ToInt(session))}, BytesOf(proof));
}

}  // namespace embla
