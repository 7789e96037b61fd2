#include "core/tls/tls.h"

#include <algorithm>
#include <utility>

#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/file.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla {
namespace {

using grpc::experimental::ExternalCertificateVerifier;
using grpc::experimental::TlsCustomVerificationCheckRequest;

std::string ToString(grpc::string_ref text) { return {text.data(), text.size()}; }

// Runs in gRPC's threads at the end of each handshake, so it must not block for long: the files
// that it looks at are read again only after they have changed.
class PeerVerifier final : public ExternalCertificateVerifier {
 public:
  using Judge = std::function<absl::Status(std::string_view chain_pem)>;

  explicit PeerVerifier(Judge judge) : judge_(std::move(judge)) {}

  bool Verify(TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* verdict) override {
    // A server is not given its own peer's certificate as a part of the chain, a client is.
    const absl::Status judged =
        judge_(ToString(request->peer_cert()) + ToString(request->peer_cert_full_chain()));
    if (!judged.ok()) {
      *verdict = grpc::Status(grpc::StatusCode::UNAUTHENTICATED, Message(judged));
    }
    return true;  // It is decided.
  }
  void Cancel(TlsCustomVerificationCheckRequest*) override {}

 private:
  const Judge judge_;
};

std::shared_ptr<grpc::experimental::CertificateProviderInterface> Watch(const TlsFiles& files) {
  const std::int64_t seconds = std::max<std::int64_t>(absl::ToInt64Seconds(files.reload_every), 1);
  return std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      files.key_file(), files.certificate, files.authorities, static_cast<unsigned>(seconds));
}

absl::Status CheckPeer(const CertificateVerdict& verdict, const ExpectedPeer& expected) {
  EMBLA_RETURN_IF_ERROR(verdict.status);
  const Identity& peer = verdict.identity;
  if (peer.role == expected.role && (expected.name.empty() || peer.name == expected.name)) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(
      absl::StrCat("the server's certificate is that of ", UriOf(peer), ", not of ",
                   ToAbsl(NameOf(expected.role)), expected.name.empty() ? "" : " ", expected.name));
}

}  // namespace

absl::Status TlsFiles::Validate() const {
  if (!is_set() && key.empty() && authorities.empty() && revoked.empty()) return absl::OkStatus();
  if (certificate.empty() || authorities.empty()) {
    return absl::InvalidArgumentError(
        "TLS needs --tls-cert FILE and --tls-ca FILE, and --tls-key FILE unless the key is in the "
        "certificate's file");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Tls>> Tls::Load(const TlsFiles& files) {
  EMBLA_RETURN_IF_ERROR(files.Validate());
  if (!files.is_set()) return std::shared_ptr<Tls>();
  std::shared_ptr<Tls> tls(new Tls(files));
  EMBLA_RETURN_IF_ERROR(tls->authorities_->Load());
  EMBLA_ASSIGN_OR_RETURN(const std::string certificate,
                         ReadStatedFile("--tls-cert", files.certificate));
  EMBLA_ASSIGN_OR_RETURN(const std::string key, ReadStatedFile("--tls-key", files.key_file()));
  if (const absl::Status pair = CheckKeyPair(certificate, key); !pair.ok()) {
    return Annotate(
        pair, absl::StrCat("--tls-cert ", files.certificate, " with --tls-key ", files.key_file()));
  }
  const absl::StatusOr<CertificateFacts> facts = ReadCertificate(certificate);
  if (!facts.ok()) return Annotate(facts.status(), absl::StrCat("--tls-cert ", files.certificate));
  const absl::StatusOr<Identity> identity = IdentityFrom(facts->uri);
  if (!identity.ok()) {
    return Annotate(identity.status(), absl::StrCat("--tls-cert ", files.certificate));
  }
  tls->identity_ = *identity;
  const CertificateVerdict own = tls->authorities_->Verify(
      certificate, TrustedAuthorities::Purpose::kClient, identity->cluster, absl::Now());
  if (!own.status.ok()) {
    return Annotate(own.status, absl::StrCat("--tls-cert ", files.certificate));
  }
  tls->watched_ = Watch(files);
  return tls;
}

Tls::Tls(TlsFiles files)
    : files_(std::move(files)),
      authorities_(std::make_shared<TrustedAuthorities>(files_.authorities, files_.revoked)) {}

absl::Time Tls::NotAfter() const {
  const absl::StatusOr<std::string> pem = ReadFile(files_.certificate);
  if (!pem.ok()) return absl::InfinitePast();
  const absl::StatusOr<CertificateFacts> facts = ReadCertificate(*pem);
  return facts.ok() ? facts->not_after : absl::InfinitePast();
}

std::shared_ptr<grpc::ServerCredentials> Tls::ForServer(OnRefused on_refused) const {
  grpc::experimental::TlsServerCredentialsOptions options(watched_);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  // All checks are the verifier's, which also refuses callers without a certificate.
  options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
  options.set_check_call_host(false);
  options.set_certificate_verifier(ExternalCertificateVerifier::Create<PeerVerifier>(
      [authorities = authorities_, cluster = identity_.cluster,
       on_refused = std::move(on_refused)](std::string_view chain) {
        const CertificateVerdict verdict =
            authorities->Verify(chain, TrustedAuthorities::Purpose::kClient, cluster, absl::Now());
        if (!verdict.status.ok() && on_refused) on_refused(verdict.refusal, verdict.status);
        return verdict.status;
      }));
  return grpc::experimental::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> Tls::ForChannelTo(const ExpectedPeer& peer) const {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(watched_);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(false);  // All checks are the verifier's.
  options.set_check_call_host(false);
  options.set_certificate_verifier(ExternalCertificateVerifier::Create<PeerVerifier>(
      [authorities = authorities_, cluster = identity_.cluster, peer](std::string_view chain) {
        return CheckPeer(
            authorities->Verify(chain, TrustedAuthorities::Purpose::kServer, cluster, absl::Now()),
            peer);
      }));
  return grpc::experimental::TlsCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsTo(const TlsPtr& tls,
                                                               const ExpectedPeer& peer) {
  return tls == nullptr ? grpc::InsecureChannelCredentials() : tls->ForChannelTo(peer);
}

std::optional<Identity> CallerOf(const grpc::AuthContext& context) {
  const std::vector<grpc::string_ref> ids = context.FindPropertyValues("peer_spiffe_id");
  if (ids.size() != 1) return std::nullopt;
  absl::StatusOr<Identity> identity = IdentityFrom({ids.front().data(), ids.front().size()});
  if (!identity.ok()) return std::nullopt;
  return *std::move(identity);
}

std::optional<Identity> CallerOf(const grpc::ServerContextBase& call) {
  const std::shared_ptr<const grpc::AuthContext> context = call.auth_context();
  if (context == nullptr) return std::nullopt;
  return CallerOf(*context);
}

}  // namespace embla
