// Mutual TLS for every connection of Embla: one object per program makes the credentials of its
// listeners and of its channels.
//
// gRPC reads the files again every few seconds, so a certificate is renewed by replacing its file;
// connections that are open go on with the one before. Key and certificate may be one file, which
// is then replaced by one rename: `embla certs issue` writes it so.
//
// The other end's certificate is judged after the handshake by TrustedAuthorities, which can say
// why one is refused: a server writes it to its log, a client has it in the error of its call.
// Names of hosts mean nothing: the URI of the certificate says who somebody is, and a client
// states whom it calls.
//
// A client may have a token instead of a certificate (core/tls/token.h), which goes with every call
// and is judged for every call.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/server_context.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/tls/certificate.h"
#include "core/tls/identity.h"
#include "core/tls/token.h"

struct ssl_ctx_st;  // SSL_CTX of OpenSSL.
struct ssl_st;      // SSL.
struct x509_store_ctx_st;

namespace embla {

// Files, in PEM unless stated. Without a certificate and a token there is no TLS.
struct TlsFiles {
  std::string certificate = {};  // The own one first, then what links it to an authority.
  std::string key = {};          // Empty: it is in the file of the certificate.
  std::string authorities = {};  // Authorities; their certificates are accepted.
  std::string revoked = {};      // Directory of revocation lists; empty: none.
  std::string token = {};        // Clients, instead of a certificate: the text of a token.
  std::string tokens = {};       // Servers: the tokens that are accepted; empty: none.
  absl::Duration reload_every = absl::Seconds(2);  // Whole seconds, at least 1.

  bool is_set() const { return !certificate.empty() || !token.empty(); }
  // InvalidArgument: some of the files are stated, and others are missing.
  absl::Status Validate() const;
  const std::string& key_file() const { return key.empty() ? certificate : key; }
};

// The server that a channel is to reach.
struct ExpectedPeer {
  Role role = Role::kNode;
  std::string name = {};  // Empty: any.
};

// Thread safety: every method may be called from any thread.
class Tls {
 public:
  // Judges the files as the other end will: a certificate that is expired or not of these
  // authorities is refused here, before anybody is called. Null when `files` are not set.
  // Errors: InvalidArgument, NotFound, Unauthenticated; all name the file.
  static absl::StatusOr<std::shared_ptr<Tls>> Load(const TlsFiles& files);

  const Identity& identity() const { return identity_; }
  // When the own certificate ends, by its file as it is now.
  absl::Time NotAfter() const;

  // Hears of callers that were refused in the handshake; must not block.
  using OnRefused = std::function<void(TlsRefusal, const absl::Status&)>;
  // `guard` judges every call, and asks JudgeToken where the caller has no certificate. Without a
  // guard, or without tokens, callers need a certificate.
  std::shared_ptr<grpc::ServerCredentials> ForServer(
      OnRefused on_refused, std::shared_ptr<grpc::AuthMetadataProcessor> guard = nullptr) const;
  std::shared_ptr<grpc::ChannelCredentials> ForChannelTo(const ExpectedPeer& peer) const;
  // The identity of a caller without a certificate, by its header `authorization`; empty: it has
  // none. Unauthenticated says why not.
  absl::StatusOr<Identity> JudgeToken(std::string_view authorization) const;
  // For a server that is not gRPC's: each handshake shows the certificate that is in the files
  // then. A caller shows one that is believed, or none, as CallerOf says. `context` is used no
  // longer than this object lives. `on_refused` may be null.
  void SetUpServer(ssl_ctx_st& context, OnRefused on_refused) const;
  // For a client that is not gRPC's, in the same way. It has to ask CheckServer before it says
  // anything.
  void SetUpClient(ssl_ctx_st& context) const;

 private:
  explicit Tls(TlsFiles files);
  struct Judging;  // Judges the handshakes of a context.
  void SetUp(ssl_ctx_st& context, TrustedAuthorities::Purpose purpose, OnRefused on_refused) const;

  const TlsFiles files_;
  Identity identity_;
  // Shared by all credentials: it has a thread that looks at the files.
  std::shared_ptr<grpc::experimental::CertificateProviderInterface> watched_;
  const std::shared_ptr<TrustedAuthorities> authorities_;
  const std::unique_ptr<AcceptedTokens> tokens_;  // Null: none are accepted.
  const std::shared_ptr<TokenFile> own_token_;    // Null: there is a certificate.
};

using TlsPtr = std::shared_ptr<Tls>;  // Null: plaintext.

// The other end of a connection of such a context, by its certificate; nothing: it has shown none.
std::optional<Identity> PeerOf(const ssl_st& connection);
// Unauthenticated: the server of a connection is not `expected`.
absl::Status CheckServer(const ssl_st& connection, const ExpectedPeer& expected);
absl::Status CheckServer(const Identity& server, const ExpectedPeer& expected);

// `tls` may be null: plaintext.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsTo(const TlsPtr& tls,
                                                               const ExpectedPeer& peer);

// The caller of a connection over TLS, by its certificate; nothing: it has none.
std::optional<Identity> CallerOf(const grpc::AuthContext& context);
// The caller of a call over TLS, by certificate or token; nothing over plaintext. Requires: the
// server's guard has let the call through, so that a token is what it says.
std::optional<Identity> CallerOf(const grpc::ServerContextBase& call);

}  // namespace embla
