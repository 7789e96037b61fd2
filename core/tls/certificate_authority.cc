#include "core/tls/certificate_authority.h"

#include <openssl/pem.h>
#include <openssl/rand.h>

#include <algorithm>

#include "core/base/status_macros.h"
#include "core/tls/certificate.h"
#include "core/tls/openssl_handles.h"

namespace embla {
namespace {

constexpr absl::Duration kBefore = absl::Minutes(5);
constexpr std::string_view kTrustDomain = "spiffe://";
constexpr int kSerialBytes = 16;

absl::Status AddExtension(X509& certificate, X509& issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, &issuer, &certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  if (extension == nullptr) return openssl::Failed("make an extension");
  X509_add_ext(&certificate, extension, -1);
  X509_EXTENSION_free(extension);
  return absl::OkStatus();
}

// A random number of 127 bits: never 0 or negative.
absl::Status SetSerial(X509& certificate) {
  unsigned char bytes[kSerialBytes];
  if (RAND_bytes(bytes, kSerialBytes) != 1) return openssl::Failed("draw a serial number");
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);
  BIGNUM* const number = BN_bin2bn(bytes, kSerialBytes, nullptr);
  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(&certificate));
  BN_free(number);
  return absl::OkStatus();
}

void SetTime(ASN1_TIME* at, absl::Time time) { ASN1_TIME_set(at, absl::ToTimeT(time)); }

absl::StatusOr<openssl::Certificate> NewCertificate(const std::string& common_name, EVP_PKEY& key,
                                                    absl::Time begin, absl::Time end) {
  openssl::Certificate certificate(X509_new());
  if (certificate == nullptr) return openssl::Failed("make a certificate");
  X509_set_version(certificate.get(), 2);  // Version 3.
  EMBLA_RETURN_IF_ERROR(SetSerial(*certificate));
  SetTime(X509_getm_notBefore(certificate.get()), begin);
  SetTime(X509_getm_notAfter(certificate.get()), end);
  X509_set_pubkey(certificate.get(), &key);
  // RFC 5280 allows 64 characters.
  const std::string name = common_name.substr(0, 64);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

absl::StatusOr<openssl::Key> NewKey() {
  openssl::Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return openssl::Failed("make a key");
  return key;
}

absl::StatusOr<CertificateAndKey> ToPem(X509& certificate, EVP_PKEY& key) {
  const openssl::Bio certificate_text(BIO_new(BIO_s_mem()));
  const openssl::Bio key_text(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(certificate_text.get(), &certificate) != 1 ||
      PEM_write_bio_PrivateKey(key_text.get(), &key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return openssl::Failed("write a certificate");
  }
  return CertificateAndKey{.certificate = openssl::TextOf(*certificate_text),
                           .key = openssl::TextOf(*key_text)};
}

struct Authority {
  openssl::Certificate certificate;
  openssl::Key key;
};

absl::StatusOr<Authority> ReadAuthority(const CertificateAndKey& pem) {
  if (const absl::Status pair = CheckKeyPair(pem.certificate, pem.key); !pair.ok()) {
    return Annotate(pair, "the authority");
  }
  const openssl::Bio certificate = openssl::ReadFrom(pem.certificate);
  const openssl::Bio key = openssl::ReadFrom(pem.key);
  return Authority{
      openssl::Certificate(PEM_read_bio_X509(certificate.get(), nullptr, nullptr, nullptr)),
      openssl::Key(PEM_read_bio_PrivateKey(key.get(), nullptr, nullptr, nullptr))};
}

bool Serves(Role role) { return role == Role::kCoordinator || role == Role::kNode; }

}  // namespace

absl::StatusOr<CertificateAndKey> MakeAuthority(std::string_view cluster, absl::Duration lifetime,
                                                absl::Time now) {
  EMBLA_RETURN_IF_ERROR(CheckClusterName(cluster));
  EMBLA_ASSIGN_OR_RETURN(const openssl::Key key, NewKey());
  EMBLA_ASSIGN_OR_RETURN(const openssl::Certificate made,
                         NewCertificate(absl::StrCat("Embla authority of ", ToAbsl(cluster)), *key,
                                        now - kBefore, now + lifetime));
  X509_set_issuer_name(made.get(), X509_get_subject_name(made.get()));
  const std::string uri = absl::StrCat("URI:", ToAbsl(kTrustDomain), ToAbsl(cluster));
  EMBLA_RETURN_IF_ERROR(
      AddExtension(*made, *made, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  EMBLA_RETURN_IF_ERROR(AddExtension(*made, *made, NID_key_usage, "critical,keyCertSign,cRLSign"));
  EMBLA_RETURN_IF_ERROR(AddExtension(*made, *made, NID_subject_key_identifier, "hash"));
  EMBLA_RETURN_IF_ERROR(AddExtension(*made, *made, NID_subject_alt_name, uri));
  if (X509_sign(made.get(), key.get(), EVP_sha256()) == 0) return openssl::Failed("sign");
  return ToPem(*made, *key);
}

absl::StatusOr<std::string> ClusterOfAuthority(std::string_view certificate_pem) {
  EMBLA_ASSIGN_OR_RETURN(const CertificateFacts facts, ReadCertificate(certificate_pem));
  std::string cluster;
  if (facts.uri.starts_with(kTrustDomain)) cluster = facts.uri.substr(kTrustDomain.size());
  EMBLA_RETURN_IF_ERROR(CheckClusterName(cluster));
  return cluster;
}

absl::StatusOr<CertificateAndKey> IssueCertificate(const CertificateAndKey& authority,
                                                   const Identity& identity,
                                                   absl::Duration lifetime, absl::Time now) {
  EMBLA_RETURN_IF_ERROR(CheckClusterName(identity.cluster));
  EMBLA_RETURN_IF_ERROR(CheckIdentityName(identity.name));
  EMBLA_ASSIGN_OR_RETURN(const Authority signer, ReadAuthority(authority));
  EMBLA_ASSIGN_OR_RETURN(const CertificateFacts issuer, ReadCertificate(authority.certificate));
  if (!issuer.is_authority) {
    return absl::InvalidArgumentError("the certificate that is to sign is no authority's");
  }
  EMBLA_ASSIGN_OR_RETURN(const openssl::Key key, NewKey());
  EMBLA_ASSIGN_OR_RETURN(const openssl::Certificate made,
                         NewCertificate(identity.name, *key, now - kBefore,
                                        std::min(now + lifetime, issuer.not_after)));
  X509_set_issuer_name(made.get(), X509_get_subject_name(signer.certificate.get()));
  X509& by = *signer.certificate;
  EMBLA_RETURN_IF_ERROR(AddExtension(*made, by, NID_basic_constraints, "critical,CA:FALSE"));
  EMBLA_RETURN_IF_ERROR(AddExtension(*made, by, NID_key_usage, "critical,digitalSignature"));
  EMBLA_RETURN_IF_ERROR(
      AddExtension(*made, by, NID_ext_key_usage,
                   Serves(identity.role) ? "serverAuth,clientAuth" : "clientAuth"));
  EMBLA_RETURN_IF_ERROR(AddExtension(*made, by, NID_authority_key_identifier, "keyid"));
  EMBLA_RETURN_IF_ERROR(
      AddExtension(*made, by, NID_subject_alt_name, absl::StrCat("URI:", UriOf(identity))));
  if (X509_sign(made.get(), signer.key.get(), EVP_sha256()) == 0) return openssl::Failed("sign");
  return ToPem(*made, *key);
}

absl::StatusOr<std::string> MakeRevocationList(const CertificateAndKey& authority,
                                               std::span<const std::string> serials,
                                               absl::Duration lifetime, absl::Time now) {
  EMBLA_ASSIGN_OR_RETURN(const Authority signer, ReadAuthority(authority));
  const openssl::Crl list(X509_CRL_new());
  if (list == nullptr) return openssl::Failed("make a revocation list");
  X509_CRL_set_version(list.get(), 1);  // Version 2.
  X509_CRL_set_issuer_name(list.get(), X509_get_subject_name(signer.certificate.get()));
  ASN1_TIME* const time = ASN1_TIME_new();
  SetTime(time, now - kBefore);
  X509_CRL_set1_lastUpdate(list.get(), time);
  SetTime(time, now + lifetime);
  X509_CRL_set1_nextUpdate(list.get(), time);
  SetTime(time, now);
  for (const std::string& serial : serials) {
    BIGNUM* number = nullptr;
    const bool is_number = BN_hex2bn(&number, serial.c_str()) == static_cast<int>(serial.size());
    X509_REVOKED* const revoked = X509_REVOKED_new();
    ASN1_INTEGER* const integer = BN_to_ASN1_INTEGER(number, nullptr);
    X509_REVOKED_set_serialNumber(revoked, integer);
    X509_REVOKED_set_revocationDate(revoked, time);
    X509_CRL_add0_revoked(list.get(), revoked);
    ASN1_INTEGER_free(integer);
    BN_free(number);
    if (!is_number || serial.empty()) {
      ASN1_TIME_free(time);
      return absl::InvalidArgumentError(absl::StrCat("serial \"", serial, "\" is no number"));
    }
  }
  ASN1_TIME_free(time);
  X509_CRL_sort(list.get());
  if (X509_CRL_sign(list.get(), signer.key.get(), EVP_sha256()) == 0) {
    return openssl::Failed("sign");
  }
  const openssl::Bio text(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509_CRL(text.get(), list.get()) != 1) {
    return openssl::Failed("write a revocation list");
  }
  return openssl::TextOf(*text);
}

}  // namespace embla
