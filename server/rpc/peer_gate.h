// Tells messages of the cluster's nodes from those of strangers: a node that greets proves that it
// has the cluster's key, and gets a nonce of this process. Every message then carries a token over
// both nonces, which only a holder of the key can make.
//
// The gate keeps no record of peers: a token is computed again from what the message says, about 1
// µs for any size of message. A process that was started again has another nonce, so older tokens
// are of no use, and their senders are told to greet again.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "core/wire/peer_proof.h"
#include "embla/v1/data.pb.h"
#include "server/rpc/node_key.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class PeerGate {
 public:
  // `key` is not owned and outlives the gate.
  explicit PeerGate(const NodeKey& key) : key_(key), nonce_(RandomNonce()) {}

  // PermissionDenied: the caller has another key. Unavailable: this node has none yet.
  absl::Status Greet(const v1::PeerGreeting& greeting, v1::PeerWelcome& welcome) const;

  // PermissionDenied: no proof. Unauthenticated: the proof is not for this process; greet it again.
  // Unavailable: this node has no key yet.
  absl::Status Check(const wire::PeerProof& proof) const;

 private:
  const NodeKey& key_;  // Not owned; outlives this object.
  const std::string nonce_;
};

}  // namespace embla
