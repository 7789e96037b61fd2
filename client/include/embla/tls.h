// The certificates of a client's connections, or its token.
#pragma once

#include <string>

namespace embla::client {

// Paths of files in PEM; they are read again when they change, so a certificate is renewed by
// replacing its file. Without a certificate and a token connections are plaintext, which servers
// take on loopback and unix sockets, or with --insecure. docs/security.md says how to make the
// files.
struct TlsOptions {
  std::string certificate = {};  // The client's own: spiffe://CLUSTER/ROLE/NAME says what it may.
  std::string key = {};          // Empty: it is in the file of the certificate.
  std::string authorities = {};  // Authorities; their certificates are accepted.
  std::string revoked = {};      // A directory of revocation lists; empty: none.
  std::string token = {};        // Instead of a certificate: a file with a token.
};

}  // namespace embla::client
