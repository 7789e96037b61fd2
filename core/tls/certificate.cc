#include "core/tls/certificate.h"

#include <openssl/pem.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "core/base/file.h"
#include "core/base/status_macros.h"
#include "core/tls/openssl_handles.h"

namespace embla {
namespace {

absl::Time TimeFrom(const ASN1_TIME* time) {
  std::tm parts{};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

std::string Day(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

std::string SerialOf(const X509& certificate) {
  BIGNUM* const number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(&certificate), nullptr);
  char* const text = BN_bn2hex(number);
  std::string serial(text == nullptr ? "" : text);
  OPENSSL_free(text);
  BN_free(number);
  return serial;
}

std::string NameText(const X509_NAME* name) {
  const openssl::Bio text(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(text.get(), name, 0, XN_FLAG_ONELINE & ~ASN1_STRFLGS_ESC_MSB);
  return openssl::TextOf(*text);
}

std::string UriIn(const X509& certificate) {
  auto* const names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr));
  std::string uri;
  int uris = 0;
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const text = name->d.uniformResourceIdentifier;
    uri.assign(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
               static_cast<std::size_t>(ASN1_STRING_length(text)));
    ++uris;
  }
  GENERAL_NAMES_free(names);
  return uris == 1 ? uri : "";
}

CertificateFacts FactsOf(X509& certificate) {
  return {.uri = UriIn(certificate),
          .issuer = NameText(X509_get_issuer_name(&certificate)),
          .serial = SerialOf(certificate),
          .is_authority = X509_check_ca(&certificate) == 1,
          .not_before = TimeFrom(X509_get0_notBefore(&certificate)),
          .not_after = TimeFrom(X509_get0_notAfter(&certificate))};
}

openssl::Certificates CertificatesIn(std::string_view pem) {
  openssl::Certificates certificates(sk_X509_new_null());
  const openssl::Bio text = openssl::ReadFrom(pem);
  while (X509* const read = PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr)) {
    sk_X509_push(certificates.get(), read);
  }
  ERR_clear_error();  // The end of the text is one, too.
  return certificates;
}

std::string Describe(const CertificateFacts& facts) {
  const std::string of =
      facts.uri.empty() ? "without one URI" : absl::CHexEscape(facts.uri.substr(0, 300));
  return absl::StrCat("certificate ", of, " serial ", facts.serial.substr(0, 64));
}

CertificateVerdict Refuse(TlsRefusal refusal, std::string_view why) {
  return {.status = absl::UnauthenticatedError(ToAbsl(why)), .refusal = refusal};
}

CertificateVerdict RefuseByLibrary(int error, int depth, const CertificateFacts& facts) {
  const std::string whose =
      depth == 0 ? Describe(facts) : absl::StrCat("an authority of the ", Describe(facts));
  switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return Refuse(TlsRefusal::kExpired,
                    depth > 0 ? absl::StrCat(whose, " has expired")
                              : absl::StrCat(whose, " has expired on ", Day(facts.not_after)));
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return Refuse(TlsRefusal::kExpired,
                    absl::StrCat(whose, " is not valid before ", Day(facts.not_before),
                                 ": compare the clocks"));
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return Refuse(
          TlsRefusal::kForeign,
          absl::StrCat(Describe(facts), " is signed by no authority of --tls-ca (issuer: ",
                       absl::CHexEscape(facts.issuer.substr(0, 300)), ")"));
    case X509_V_ERR_CERT_REVOKED:
      return Refuse(TlsRefusal::kRevoked, absl::StrCat(whose, " is revoked"));
    case X509_V_ERR_CRL_HAS_EXPIRED:
      return Refuse(TlsRefusal::kRevoked,
                    absl::StrCat(whose, ": the revocation list of its issuer is out of date"));
    default:
      return Refuse(TlsRefusal::kOther,
                    absl::StrCat(whose, ": ", X509_verify_cert_error_string(error)));
  }
}

}  // namespace

std::string_view NameOf(TlsRefusal refusal) {
  switch (refusal) {
    case TlsRefusal::kMissing:
      return "missing";
    case TlsRefusal::kExpired:
      return "expired";
    case TlsRefusal::kForeign:
      return "foreign";
    case TlsRefusal::kRevoked:
      return "revoked";
    case TlsRefusal::kIdentity:
      return "identity";
    case TlsRefusal::kOther:
      break;
  }
  return "other";
}

absl::StatusOr<CertificateFacts> ReadCertificate(std::string_view pem) {
  const openssl::Bio text = openssl::ReadFrom(pem);
  const openssl::Certificate certificate(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (certificate == nullptr) return absl::InvalidArgumentError("has no certificate in PEM");
  return FactsOf(*certificate);
}

absl::Status CheckKeyPair(std::string_view certificate_pem, std::string_view key_pem) {
  const openssl::Bio certificate_text = openssl::ReadFrom(certificate_pem);
  const openssl::Certificate certificate(
      PEM_read_bio_X509(certificate_text.get(), nullptr, nullptr, nullptr));
  const openssl::Bio key_text = openssl::ReadFrom(key_pem);
  const openssl::Key key(PEM_read_bio_PrivateKey(key_text.get(), nullptr, nullptr, nullptr));
  const bool match = certificate != nullptr && key != nullptr &&
                     X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (certificate == nullptr) return absl::InvalidArgumentError("has no certificate in PEM");
  if (key == nullptr) return absl::InvalidArgumentError("has no private key in PEM");
  if (!match) return absl::InvalidArgumentError("has the private key of another certificate");
  return absl::OkStatus();
}

// Immutable once it is read.
struct TrustedAuthorities::Trust {
  openssl::Store store;
  // The state of the files as they were read: paths, sizes and times.
  std::string files;
};

namespace {

std::vector<std::string> FilesIn(const std::string& directory) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.is_regular_file(error)) files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  return files;
}

std::string StateOf(const std::string& path) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  const auto written = std::filesystem::last_write_time(path, error);
  return absl::StrCat(path, ":", bytes, ":", written.time_since_epoch().count(), "\n");
}

std::string StateOf(const std::string& file, const std::string& directory) {
  std::string state = StateOf(file);
  if (directory.empty()) return state;
  for (const std::string& each : FilesIn(directory)) state += StateOf(each);
  return state;
}

absl::Status AddLists(const std::string& directory, X509_STORE& store) {
  int lists = 0;
  for (const std::string& file : FilesIn(directory)) {
    EMBLA_ASSIGN_OR_RETURN(const std::string pem, ReadStatedFile("--tls-revoked", file));
    const openssl::Bio text = openssl::ReadFrom(pem);
    while (const openssl::Crl list{PEM_read_bio_X509_CRL(text.get(), nullptr, nullptr, nullptr)}) {
      X509_STORE_add_crl(&store, list.get());
      ++lists;
    }
    ERR_clear_error();
  }
  if (lists == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-revoked ", directory, " has no revocation list in PEM"));
  }
  X509_STORE_set_flags(&store, X509_V_FLAG_CRL_CHECK);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadStatedFile(const char* flag, const std::string& path) {
  absl::StatusOr<std::string> content = ReadFile(path);
  if (content.ok()) return content;
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", content.status().message()));
}

absl::StatusOr<std::shared_ptr<const TrustedAuthorities::Trust>> TrustedAuthorities::Read(
    const std::string& authorities_file, const std::string& revoked_directory,
    const std::shared_ptr<const Trust>& before) {
  auto trust = std::make_shared<Trust>();
  trust->files = StateOf(authorities_file, revoked_directory);
  if (before != nullptr && before->files == trust->files) return before;
  EMBLA_ASSIGN_OR_RETURN(const std::string pem, ReadStatedFile("--tls-ca", authorities_file));
  const openssl::Certificates authorities = CertificatesIn(pem);
  if (sk_X509_num(authorities.get()) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-ca ", authorities_file, " has no certificate in PEM"));
  }
  trust->store.reset(X509_STORE_new());
  for (int i = 0; i < sk_X509_num(authorities.get()); ++i) {
    X509_STORE_add_cert(trust->store.get(), sk_X509_value(authorities.get(), i));
  }
  if (!revoked_directory.empty()) {
    EMBLA_RETURN_IF_ERROR(AddLists(revoked_directory, *trust->store));
  }
  return trust;
}

TrustedAuthorities::TrustedAuthorities(const std::string& authorities_file,
                                       const std::string& revoked_directory)
    : trust_("tls", "authorities",
             [authorities_file, revoked_directory](const std::shared_ptr<const Trust>& before) {
               return Read(authorities_file, revoked_directory, before);
             }) {}

CertificateVerdict TrustedAuthorities::Verify(std::string_view chain_pem, Purpose purpose,
                                              std::string_view cluster, absl::Time now) {
  const openssl::Certificates chain = CertificatesIn(chain_pem);
  if (sk_X509_num(chain.get()) == 0) {
    return Refuse(TlsRefusal::kMissing, "no certificate was shown");
  }
  const std::shared_ptr<const Trust> trust = trust_.Current(now);
  if (trust == nullptr) return Refuse(TlsRefusal::kOther, "no authority is known");
  X509* const leaf = sk_X509_value(chain.get(), 0);
  const CertificateFacts facts = FactsOf(*leaf);
  const openssl::StoreContext context(X509_STORE_CTX_new());
  if (context == nullptr ||
      X509_STORE_CTX_init(context.get(), trust->store.get(), leaf, chain.get()) != 1) {
    return Refuse(TlsRefusal::kOther, Message(openssl::Failed("verify a certificate")));
  }
  X509_STORE_CTX_set_default(context.get(),
                             purpose == Purpose::kClient ? "ssl_client" : "ssl_server");
  X509_STORE_CTX_set_time(context.get(), 0, absl::ToTimeT(now));
  if (X509_verify_cert(context.get()) != 1) {
    ERR_clear_error();
    return RefuseByLibrary(X509_STORE_CTX_get_error(context.get()),
                           X509_STORE_CTX_get_error_depth(context.get()), facts);
  }
  absl::StatusOr<Identity> identity = IdentityFrom(facts.uri);
  if (!identity.ok()) {
    return Refuse(TlsRefusal::kIdentity,
                  absl::StrCat(Describe(facts), ": ", ToAbsl(Message(identity.status()))));
  }
  if (identity->cluster != cluster) {
    return Refuse(TlsRefusal::kIdentity,
                  absl::StrCat(Describe(facts), " is of another cluster than ", ToAbsl(cluster)));
  }
  return {.status = absl::OkStatus(), .identity = *std::move(identity)};
}

}  // namespace embla
