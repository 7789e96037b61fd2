// Test support: an address of this machine that no other process uses.
#pragma once

#include <netinet/in.h>

#include <string>

namespace embla::testing {

// An address in 127.0.0.0/8, the same at every call of this process and another in every other one
// that runs: a server that comes back on its port finds it free, whatever other tests bind.
const std::string& LoopbackHost();
// host:0, where a server is given a free port.
std::string AnyLoopbackPort();
// The socket name of an address of the form 127.0.0.1:80.
sockaddr_in SocketName(const std::string& address);

}  // namespace embla::testing
