// The address that a connection comes from.
#pragma once

#include <string>

namespace embla {

// The key by which connections are counted, and their name in logs: address without port, or the
// user of a unix socket. Empty: the peer is gone.
std::string PeerAddressOf(int socket);

}  // namespace embla
