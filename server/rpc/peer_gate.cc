#include "server/rpc/peer_gate.h"

#include "server/rpc/key_proofs.h"

namespace embla {
namespace {

absl::Status NoKeyYet() {
  return absl::UnavailableError("this node does not know the cluster's key yet");
}

}  // namespace

absl::Status PeerGate::Greet(const v1::PeerGreeting& greeting, v1::PeerWelcome& welcome) const {
  const ClusterKeyPtr key = key_.current();
  if (key == nullptr) return NoKeyYet();
  if (!IsGreeting(*key, greeting.nonce(), greeting.node(), greeting.proof())) {
    return absl::PermissionDeniedError("the caller does not have this cluster's key");
  }
  welcome.set_nonce(nonce_);
  welcome.set_proof(ProveWelcome(*key, {.caller = greeting.nonce(), .answerer = nonce_}));
  return absl::OkStatus();
}

absl::Status PeerGate::Check(const wire::PeerProof& proof) const {
  if (proof.token.empty()) {
    return absl::PermissionDeniedError(
        "only nodes of this cluster may call this, and the call does not prove to come from one");
  }
  const ClusterKeyPtr key = key_.current();
  if (key == nullptr) return NoKeyYet();
  const PeerNonces nonces{.caller = proof.nonce, .answerer = nonce_};
  if (IsPeer(*key, nonces, proof.node, proof.token)) return absl::OkStatus();
  return absl::UnauthenticatedError("the call's proof is not for this process: greet it again");
}

}  // namespace embla
