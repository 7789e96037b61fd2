// v1.PeerProof: proves which node sent a message between nodes.
#pragma once

#include <string>

namespace embla::wire {

struct PeerProof {
  std::string nonce;  // Nonce in the sender's greeting.
  std::string node;   // The sender's name.
  std::string token;  // Empty: the message has no proof.
};

}  // namespace embla::wire
