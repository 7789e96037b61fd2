#include "core/tls/tls.h"

#include <algorithm>
#include <iterator>
#include <map>
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
  using Provider = grpc::experimental::FileWatcherCertificateProvider;
  const auto seconds =
      static_cast<unsigned>(std::max<std::int64_t>(absl::ToInt64Seconds(files.reload_every), 1));
  if (files.certificate.empty()) return std::make_shared<Provider>(files.authorities, seconds);
  return std::make_shared<Provider>(files.key_file(), files.certificate, files.authorities,
                                    seconds);
}

constexpr char kAuthorization[] = "authorization";
constexpr std::string_view kBearer = "Bearer ";

// Adds the token to every call of a channel over TLS.
class SendToken final : public grpc::MetadataCredentialsPlugin {
 public:
  explicit SendToken(std::shared_ptr<TokenFile> token) : token_(std::move(token)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status GetMetadata(grpc::string_ref, grpc::string_ref, const grpc::AuthContext&,
                           std::multimap<std::string, std::string>* metadata) override {
    metadata->emplace(kAuthorization, absl::StrCat(ToAbsl(kBearer), token_->Current(absl::Now())));
    return grpc::Status::OK;
  }

 private:
  const std::shared_ptr<TokenFile> token_;
};

bool IsOverTls(const grpc::AuthContext& context) {
  const auto types = context.FindPropertyValues("transport_security_type");
  return types.size() == 1 && (types.front() == "tls" || types.front() == "ssl");
}

}  // namespace

absl::Status CheckServer(const Identity& server, const ExpectedPeer& expected) {
  if (server.role == expected.role && (expected.name.empty() || server.name == expected.name)) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(
      absl::StrCat("the server's certificate is that of ", UriOf(server), ", not of ",
                   ToAbsl(NameOf(expected.role)), expected.name.empty() ? "" : " ", expected.name));
}

absl::Status TlsFiles::Validate() const {
  if (!is_set() && key.empty() && authorities.empty() && revoked.empty() && tokens.empty()) {
    return absl::OkStatus();
  }
  if (!token.empty()) {
    if (certificate.empty() && !authorities.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--token-file takes the place of --tls-cert, and needs --tls-ca FILE: tokens go over TLS "
        "only");
  }
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
  if (tls->tokens_ != nullptr) EMBLA_RETURN_IF_ERROR(tls->tokens_->Load());
  if (tls->own_token_ != nullptr) {
    EMBLA_RETURN_IF_ERROR(tls->own_token_->Load());
    EMBLA_ASSIGN_OR_RETURN(tls->identity_, ClaimOf(tls->own_token_->Current(absl::Now())));
    tls->watched_ = Watch(files);
    return tls;
  }
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
      authorities_(std::make_shared<TrustedAuthorities>(files_.authorities, files_.revoked)),
      tokens_(files_.tokens.empty() ? nullptr : std::make_unique<AcceptedTokens>(files_.tokens)),
      own_token_(files_.token.empty() ? nullptr : std::make_shared<TokenFile>(files_.token)) {}

absl::Time Tls::NotAfter() const {
  const absl::StatusOr<std::string> pem = ReadFile(files_.certificate);
  if (!pem.ok()) return absl::InfinitePast();
  const absl::StatusOr<CertificateFacts> facts = ReadCertificate(*pem);
  return facts.ok() ? facts->not_after : absl::InfinitePast();
}

std::shared_ptr<grpc::ServerCredentials> Tls::ForServer(
    OnRefused on_refused, std::shared_ptr<grpc::AuthMetadataProcessor> guard) const {
  grpc::experimental::TlsServerCredentialsOptions options(watched_);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  // All checks are the verifier's, also of whether a certificate is needed.
  options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
  options.set_check_call_host(false);
  options.set_certificate_verifier(ExternalCertificateVerifier::Create<PeerVerifier>(
      [authorities = authorities_, cluster = identity_.cluster,
       admits_tokens = guard != nullptr && tokens_ != nullptr,
       on_refused = std::move(on_refused)](std::string_view chain) {
        if (chain.empty() && admits_tokens) return absl::OkStatus();
        const CertificateVerdict verdict =
            authorities->Verify(chain, TrustedAuthorities::Purpose::kClient, cluster, absl::Now());
        if (!verdict.status.ok() && on_refused) on_refused(verdict.refusal, verdict.status);
        return verdict.status;
      }));
  auto credentials = grpc::experimental::TlsServerCredentials(options);
  if (guard != nullptr) credentials->SetAuthMetadataProcessor(guard);
  return credentials;
}

absl::StatusOr<Identity> Tls::JudgeToken(std::string_view authorization) const {
  if (tokens_ == nullptr) {
    return absl::UnauthenticatedError("the connection has no caller's certificate");
  }
  if (!authorization.starts_with(kBearer)) {
    return absl::UnauthenticatedError("the caller has neither a certificate nor a token");
  }
  return tokens_->Verify(authorization.substr(kBearer.size()), identity_.cluster, absl::Now());
}

std::shared_ptr<grpc::ChannelCredentials> Tls::ForChannelTo(const ExpectedPeer& peer) const {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(watched_);
  options.watch_root_certs();
  if (own_token_ == nullptr) options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(false);  // All checks are the verifier's.
  options.set_check_call_host(false);
  options.set_certificate_verifier(ExternalCertificateVerifier::Create<PeerVerifier>(
      [authorities = authorities_, cluster = identity_.cluster, peer](std::string_view chain) {
        const CertificateVerdict verdict =
            authorities->Verify(chain, TrustedAuthorities::Purpose::kServer, cluster, absl::Now());
        return verdict.status.ok() ? CheckServer(verdict.identity, peer) : verdict.status;
      }));
  const auto channel = grpc::experimental::TlsCredentials(options);
  if (own_token_ == nullptr) return channel;
  return grpc::CompositeChannelCredentials(
      channel, grpc::MetadataCredentialsFromPlugin(std::make_unique<SendToken>(own_token_)));
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
  std::optional<Identity> shown = CallerOf(*context);
  if (shown.has_value() || !IsOverTls(*context)) return shown;
  // Over TLS nobody is nobody: whatever is not understood here may read at most.
  const auto [first, last] = call.client_metadata().equal_range(kAuthorization);
  if (first == last || std::next(first) != last) return Identity();
  std::string_view token(first->second.data(), first->second.size());
  token.remove_prefix(std::min(kBearer.size(), token.size()));
  return ClaimOf(token).value_or(Identity());
}

}  // namespace embla
