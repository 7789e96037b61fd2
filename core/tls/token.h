// Bearer tokens: how a caller without a certificate says who it is, over TLS.
//
// A token is CLUSTER/ROLE/NAME/SECRET, the path of the identity that it gives, and 256 random bits
// in hexadecimal. Servers have a file of the tokens that they accept, one a line:
//
//   ROLE NAME SHA256 [END]
//
// with the SHA-256 of the whole token, in hexadecimal, and the time of its end as RFC 3339. So
// nobody gets a token from the file. Empty lines and lines that begin with # are skipped; an
// identity may have several tokens, while one takes another's place.
//
// Messages have no part of a token but the identity, and no part of a file but numbers of lines.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/fresh_content.h"
#include "core/tls/identity.h"

namespace embla {

// InvalidArgument: names that no certificate could have, or a role that needs a certificate: other
// servers and trainers have to know that a coordinator or a node is one.
absl::StatusOr<std::string> NewToken(const Identity& identity);
// The line for the file of servers. `end` may be InfiniteFuture.
std::string LineOfToken(const Identity& identity, std::string_view token, absl::Time end);
// The identity that a token claims to give. Unauthenticated: it is no token.
absl::StatusOr<Identity> ClaimOf(std::string_view token);

// The tokens of a file, which is read again when it has changed.
//
// Thread safety: every method may be called from any thread.
class AcceptedTokens {
 public:
  // Lines of a file: each second with calls it is read, and a call looks at all of its identity.
  static constexpr std::size_t kTokensMax = 10'000;

  explicit AcceptedTokens(const std::string& file);

  // InvalidArgument names the file, and the line.
  absl::Status Load() { return content_.Load(); }

  // The token's identity. Unauthenticated says why not: it is no token, of another cluster, not
  // accepted, or over. The time taken does not depend on how much of a secret is right.
  absl::StatusOr<Identity> Verify(std::string_view token, std::string_view cluster, absl::Time now);

 private:
  struct Content;

  FreshContent<Content> content_;
};

// A client's token in a file, which is read again when it has changed. Thread safety: likewise.
class TokenFile {
 public:
  explicit TokenFile(const std::string& file);

  // InvalidArgument names the file: it cannot be read, or has no token.
  absl::Status Load() { return token_.Load(); }
  // After an error the one before; empty: there was none.
  std::string Current(absl::Time now);

 private:
  FreshContent<std::string> token_;
};

}  // namespace embla
