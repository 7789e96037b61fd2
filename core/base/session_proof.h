// Proves to every holder of the cluster's key that the coordinator granted a session
// (docs/protocol.md, "Sessions"). Clients get it with the session and send both.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/base/ids.h"

namespace embla {

class ClusterKey;

// All zeros: none.
using SessionProof = std::array<char, 16>;

inline std::string_view BytesOf(const SessionProof& proof) { return {proof.data(), proof.size()}; }

SessionProof ProveSession(const ClusterKey& key, SessionId session);
bool IsProofOf(const ClusterKey& key, SessionId session, const SessionProof& proof);

}  // namespace embla
