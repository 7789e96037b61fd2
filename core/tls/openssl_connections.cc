// Tls for connections that use OpenSSL themselves.
#include <optional>
#include <string>
#include <utility>

#include <openssl/pem.h>
#include <openssl/ssl.h>

#include "absl/time/clock.h"
#include "core/tls/openssl_handles.h"
#include "core/tls/tls.h"

namespace embla {
namespace {

// The chain that the caller has sent, its own certificate first.
std::string ChainOf(X509_STORE_CTX& shown) {
  const openssl::Bio text(BIO_new(BIO_s_mem()));
  X509* const own = X509_STORE_CTX_get0_cert(&shown);
  PEM_write_bio_X509(text.get(), own);
  const STACK_OF(X509)* const sent = X509_STORE_CTX_get0_untrusted(&shown);
  for (int i = 0; i < sk_X509_num(sent); ++i) {
    if (sk_X509_value(sent, i) != own) PEM_write_bio_X509(text.get(), sk_X509_value(sent, i));
  }
  return openssl::TextOf(*text);
}

// `files` are those of a Tls.
int ShowCertificate(SSL* connection, void* files) {
  const auto& own = *static_cast<const TlsFiles*>(files);
  if (own.certificate.empty()) return 1;  // It has a token.
  SSL_certs_clear(connection);
  return SSL_use_certificate_chain_file(connection, own.certificate.c_str()) == 1 &&
         SSL_use_PrivateKey_file(connection, own.key_file().c_str(), SSL_FILETYPE_PEM) == 1;
}

}  // namespace

struct Tls::Judging {
  const Tls& tls;
  const TrustedAuthorities::Purpose purpose;
  const OnRefused on_refused;

  int Judge(X509_STORE_CTX& shown) const {
    const CertificateVerdict verdict =
        tls.authorities_->Verify(ChainOf(shown), purpose, tls.identity_.cluster, absl::Now());
    if (verdict.status.ok()) return 1;
    if (on_refused != nullptr) on_refused(verdict.refusal, verdict.status);
    X509_STORE_CTX_set_error(&shown, X509_V_ERR_APPLICATION_VERIFICATION);
    return 0;
  }

  // The place for one in a context, which deletes it.
  static int Index() {
    static const int index = SSL_CTX_get_ex_new_index(
        0, nullptr, nullptr, nullptr, [](void*, void* judging, CRYPTO_EX_DATA*, int, long, void*) {
          delete static_cast<const Judging*>(judging);
        });
    return index;
  }
};

void Tls::SetUpServer(SSL_CTX& context, OnRefused on_refused) const {
  SetUp(context, TrustedAuthorities::Purpose::kClient, std::move(on_refused));
}

void Tls::SetUpClient(SSL_CTX& context) const {
  SetUp(context, TrustedAuthorities::Purpose::kServer, nullptr);
}

void Tls::SetUp(SSL_CTX& context, TrustedAuthorities::Purpose purpose, OnRefused on_refused) const {
  SSL_CTX_set_min_proto_version(&context, TLS1_2_VERSION);
  // Nothing is remembered of a connection: each peer is judged anew.
  SSL_CTX_set_session_cache_mode(&context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(&context, SSL_OP_NO_TICKET);
  // OpenSSL's callbacks take what is theirs as void*; they change nothing.
  SSL_CTX_set_cert_cb(&context, &ShowCertificate, const_cast<TlsFiles*>(&files_));
  SSL_CTX_set_verify(&context, SSL_VERIFY_PEER, nullptr);
  auto* const judging =
      new Judging{.tls = *this, .purpose = purpose, .on_refused = std::move(on_refused)};
  SSL_CTX_set_ex_data(&context, Judging::Index(), judging);
  SSL_CTX_set_cert_verify_callback(
      &context,
      [](X509_STORE_CTX* shown, void* own) { return static_cast<Judging*>(own)->Judge(*shown); },
      judging);
}

std::optional<Identity> PeerOf(const SSL& connection) {
  X509* const shown = SSL_get0_peer_certificate(&connection);
  if (shown == nullptr) return std::nullopt;
  const openssl::Bio text(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(text.get(), shown);
  // It was believed in the handshake, so it can be read, and has an identity.
  const absl::StatusOr<CertificateFacts> facts = ReadCertificate(openssl::TextOf(*text));
  if (!facts.ok()) return std::nullopt;
  absl::StatusOr<Identity> identity = IdentityFrom(facts->uri);
  if (!identity.ok()) return std::nullopt;
  return *std::move(identity);
}

absl::Status CheckServer(const SSL& connection, const ExpectedPeer& expected) {
  const std::optional<Identity> server = PeerOf(connection);
  if (!server.has_value()) {
    return absl::UnauthenticatedError("the server has shown no certificate");
  }
  return CheckServer(*server, expected);
}

}  // namespace embla
