// Sockets that a server listens on.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/file_descriptor.h"
#include "server/rpc/listen_address.h"

namespace embla {

struct ListeningSockets {
  std::vector<FileDescriptor> sockets;  // Non-blocking. A name may stand for several addresses.
  int port = 0;                         // 0 for a unix socket.
  std::string unix_path;                // Removed when the socket is closed. Else empty.
};

// Binds and listens. 0.0.0.0 and [::] both mean every address of this machine, IPv4 and IPv6.
// A unix socket without a server is taken over. Errors: InvalidArgument (a path that is too long),
// Unavailable (in use, not this machine's, or not allowed; says which address).
absl::StatusOr<ListeningSockets> Listen(const ListenAddress& address);

// The same sockets for one more server: connections go to whoever accepts, and wait while nobody
// does. A unix socket's path stays `sockets`'. Unavailable: no descriptors are left.
absl::StatusOr<ListeningSockets> Duplicate(const ListeningSockets& sockets);

}  // namespace embla
