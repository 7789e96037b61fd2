// The address that a connection comes from.
#pragma once

#include <string>

namespace embla {

// The key by which connections are counted, and their name in logs: address without port, or the
// user of a unix socket. Empty: the peer is gone.
std::string PeerAddressOf(int socket);

// Whether an address of PeerAddressOf is an IP address, or this process's user, or root.
bool IsOwnUser(const std::string& address);

// The peer's name in gRPC, which has the port. Empty: the peer is gone, or a unix socket's.
std::string PeerNameOf(int socket);

}  // namespace embla
