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
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/server_context.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/tls/certificate.h"
#include "core/tls/identity.h"

struct ssl_ctx_st;  // SSL_CTX of OpenSSL.
struct ssl_st;      // SSL.
struct x509_store_ctx_st;

namespace embla {

// Files in PEM. Without a certificate there is no TLS.
struct TlsFiles {
  std::string certificate;  // The own one first, then what links it to an authority.
  std::string key;          // Empty: it is in the file of the certificate.
  std::string authorities;  // Authorities; their certificates are accepted.
  std::string revoked;      // Directory of revocation lists; empty: none.
  absl::Duration reload_every = absl::Seconds(2);  // Whole seconds, at least 1.

  bool is_set() const { return !certificate.empty(); }
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
  std::shared_ptr<grpc::ServerCredentials> ForServer(OnRefused on_refused) const;
  std::shared_ptr<grpc::ChannelCredentials> ForChannelTo(const ExpectedPeer& peer) const;
  // For a server that is not gRPC's: each handshake shows the certificate that is in the files
  // then. A caller shows one that is believed, or none: HasShownCertificate. `context` is used no
  // longer than this object lives.
  void SetUpServer(ssl_ctx_st& context) const;

 private:
  explicit Tls(TlsFiles files);
  static int Judge(x509_store_ctx_st* shown, void* self);  // A callback of OpenSSL.

  const TlsFiles files_;
  Identity identity_;
  // Shared by all credentials: it has a thread that looks at the files.
  std::shared_ptr<grpc::experimental::CertificateProviderInterface> watched_;
  const std::shared_ptr<TrustedAuthorities> authorities_;
};

using TlsPtr = std::shared_ptr<Tls>;  // Null: plaintext.

// Whether the other end of a connection of Tls::SetUpServer's context has shown a certificate, and
// whose; nothing: it has shown none.
bool HasShownCertificate(const ssl_st& connection);
std::optional<Identity> CallerOf(const ssl_st& connection);

// `tls` may be null: plaintext.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsTo(const TlsPtr& tls,
                                                               const ExpectedPeer& peer);

// The caller of a call over TLS; nothing over plaintext.
std::optional<Identity> CallerOf(const grpc::AuthContext& context);
std::optional<Identity> CallerOf(const grpc::ServerContextBase& call);

}  // namespace embla
