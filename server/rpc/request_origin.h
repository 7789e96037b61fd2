// The identity of a request's sender, as far as it has been shown.
#pragma once

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/base/session_proof.h"
#include "core/base/status_macros.h"
#include "server/rpc/connection_shares.h"
#include "server/shard/session_gate.h"

namespace embla {

// The sender's session, if its proof is right and it is not closed; 0: a stranger, which may be
// answered, but has no rights.
// PermissionDenied: the proof is wrong. Unavailable: it cannot be verified yet.
inline absl::StatusOr<SessionId> OriginOf(SessionGate& gate, SessionId session,
                                          const SessionProof& proof) {
  if (session == SessionId{}) return session;
  EMBLA_RETURN_IF_ERROR(gate.Verify(session, proof));
  return gate.IsClosed(session) ? SessionId{} : session;
}

// A request came by the connection whose session's proof is right. Session 0 is none.
inline void ShowOrigin(SessionGate& gate, SessionId session, ConnectionId connection) {
  if (session != SessionId{} && !gate.IsClosed(session)) ShowSession(connection);
}

}  // namespace embla
