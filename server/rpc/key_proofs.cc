#include "server/rpc/key_proofs.h"

namespace embla {
namespace {

// No label begins another one.
constexpr std::string_view kLinkCoordinator = "embla link coordinator";
constexpr std::string_view kLinkNode = "embla link node";
constexpr std::string_view kPeerGreeting = "embla peer greeting";
constexpr std::string_view kPeerWelcome = "embla peer welcome";
constexpr std::string_view kPeerToken = "embla peer token";

bool IsNonce(const std::string& nonce) { return nonce.size() == ClusterKey::kNonceBytes; }

}  // namespace

std::string ProveCoordinator(const ClusterKey& key, const LinkNonces& nonces) {
  return key.Sign(kLinkCoordinator, {nonces.node, nonces.coordinator});
}

bool IsCoordinator(const ClusterKey& key, const LinkNonces& nonces, std::string_view proof) {
  return IsNonce(nonces.node) && IsNonce(nonces.coordinator) &&
         key.Verify(kLinkCoordinator, {nonces.node, nonces.coordinator}, proof);
}

std::string ProveNode(const ClusterKey& key, const LinkNonces& nonces, std::uint64_t boot_id,
                      std::string_view name) {
  return key.Sign(kLinkNode, {nonces.node, nonces.coordinator, LittleEndianPart(boot_id), name});
}

bool IsNode(const ClusterKey& key, const LinkNonces& nonces, std::uint64_t boot_id,
            std::string_view name, std::string_view proof) {
  return IsNonce(nonces.node) && IsNonce(nonces.coordinator) &&
         key.Verify(kLinkNode, {nonces.node, nonces.coordinator, LittleEndianPart(boot_id), name},
                    proof);
}

std::string ProveGreeting(const ClusterKey& key, const std::string& caller_nonce,
                          std::string_view caller) {
  return key.Sign(kPeerGreeting, {caller_nonce, caller});
}

bool IsGreeting(const ClusterKey& key, const std::string& caller_nonce, std::string_view caller,
                std::string_view proof) {
  return IsNonce(caller_nonce) && key.Verify(kPeerGreeting, {caller_nonce, caller}, proof);
}

std::string ProveWelcome(const ClusterKey& key, const PeerNonces& nonces) {
  return key.Sign(kPeerWelcome, {nonces.caller, nonces.answerer});
}

bool IsWelcome(const ClusterKey& key, const PeerNonces& nonces, std::string_view proof) {
  return IsNonce(nonces.caller) && IsNonce(nonces.answerer) &&
         key.Verify(kPeerWelcome, {nonces.caller, nonces.answerer}, proof);
}

std::string ProvePeer(const ClusterKey& key, const PeerNonces& nonces, std::string_view caller) {
  return key.Sign(kPeerToken, {nonces.caller, nonces.answerer, caller});
}

bool IsPeer(const ClusterKey& key, const PeerNonces& nonces, std::string_view caller,
            std::string_view token) {
  return IsNonce(nonces.caller) && IsNonce(nonces.answerer) &&
         key.Verify(kPeerToken, {nonces.caller, nonces.answerer, caller}, token);
}

}  // namespace embla
