// Proofs that the parties of a cluster give each other by the cluster's key. Each function returns
// the proof, or says whether one is right; the input of each HMAC is in docs/protocol.md.
//
// Nonces have ClusterKey::kNonceBytes bytes; a nonce of another size makes every proof wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/cluster_key.h"

namespace embla {

// A link: the coordinator answers the node's nonce, the node the coordinator's.
struct LinkNonces {
  std::string node;
  std::string coordinator;
};
std::string ProveCoordinator(const ClusterKey& key, const LinkNonces& nonces);
bool IsCoordinator(const ClusterKey& key, const LinkNonces& nonces, std::string_view proof);
std::string ProveNode(const ClusterKey& key, const LinkNonces& nonces, std::uint64_t boot_id,
                      std::string_view name);
bool IsNode(const ClusterKey& key, const LinkNonces& nonces, std::uint64_t boot_id,
            std::string_view name, std::string_view proof);

// Two nodes: the caller's nonce, and that of the process that answers.
struct PeerNonces {
  std::string caller;
  std::string answerer;
};
std::string ProveGreeting(const ClusterKey& key, const std::string& caller_nonce,
                          std::string_view caller);
bool IsGreeting(const ClusterKey& key, const std::string& caller_nonce, std::string_view caller,
                std::string_view proof);
std::string ProveWelcome(const ClusterKey& key, const PeerNonces& nonces);
bool IsWelcome(const ClusterKey& key, const PeerNonces& nonces, std::string_view proof);
// The token that every message between the two carries.
std::string ProvePeer(const ClusterKey& key, const PeerNonces& nonces, std::string_view caller);
bool IsPeer(const ClusterKey& key, const PeerNonces& nonces, std::string_view caller,
            std::string_view token);

}  // namespace embla
