// An address for a server to listen on.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace embla {

struct ListenAddress {
  // The address as given: host:port, [ipv6]:port or unix:/path; port 0 takes a free one.
  std::string text;
  std::string host;  // Without brackets; empty for a unix socket.
  int port = 0;
  bool unix_socket = false;
  bool loopback = false;  // Only this machine can connect.

  // The address with the port that was bound.
  std::string WithPort(int bound_port) const;
};

// Errors: InvalidArgument (not an address).
absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text);

// Without TLS connections are not encrypted and callers are not authenticated: refuses addresses
// that other machines can reach unless `insecure` says that the network is trusted.
// Errors: InvalidArgument (not an address), FailedPrecondition (refused; says what to do).
absl::StatusOr<ListenAddress> CheckListenAddress(const std::string& text, bool insecure);

}  // namespace embla
