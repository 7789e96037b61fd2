// Certificates as PEM text: what they say, and whether an authority stands behind them.
//
// The checks are OpenSSL's X509_verify_cert. They are made here, for both ends of a connection, and
// not inside the handshake, because a failed handshake tells nobody why: the reasons below are what
// logs and errors say.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/fresh_content.h"
#include "core/tls/identity.h"

namespace embla {

struct CertificateFacts {
  std::string uri;     // The only URI among its alternative names; empty: none, or several.
  std::string issuer;  // The issuer's distinguished name.
  std::string serial;  // Hexadecimal.
  bool is_authority = false;
  absl::Time not_before;
  absl::Time not_after;
};

// The facts of the first certificate of `pem`. InvalidArgument: there is none.
absl::StatusOr<CertificateFacts> ReadCertificate(std::string_view pem);

// The content of the file that `flag` names. InvalidArgument: it cannot be read.
absl::StatusOr<std::string> ReadStatedFile(const char* flag, const std::string& path);

// Whether `key_pem` has the private key of the first certificate of `certificate_pem`.
// InvalidArgument: one of them cannot be read, or they do not belong together.
absl::Status CheckKeyPair(std::string_view certificate_pem, std::string_view key_pem);

// Why a certificate is refused. The names are labels of embla_tls_refused_total.
enum class TlsRefusal : std::uint8_t {
  kMissing,   // None was shown.
  kExpired,   // Over, or not valid yet.
  kForeign,   // No authority of ours has signed it.
  kRevoked,   // Its serial number is in a revocation list, or the list is too old to tell.
  kIdentity,  // No identity of this cluster, or not that of whom was called.
  kOther,
};
std::string_view NameOf(TlsRefusal refusal);

struct CertificateVerdict {
  absl::Status status;  // Unauthenticated says whose certificate, why, and since when.
  TlsRefusal refusal = TlsRefusal::kOther;
  Identity identity = {};  // When the status is OK.
};

// The authorities of a file, and the revocation lists of a directory. Both are read again when they
// have changed.
//
// Thread safety: every method may be called from any thread.
class TrustedAuthorities {
 public:
  // `revoked_directory` has files in PEM of any name with certificate revocation lists; a list
  // covers the certificates of its issuer. Empty: nothing is revoked.
  TrustedAuthorities(const std::string& authorities_file, const std::string& revoked_directory);

  // InvalidArgument and NotFound name the file.
  absl::Status Load() { return trust_.Load(); }

  enum class Purpose : std::uint8_t { kClient, kServer };
  // Judges the first certificate of `chain_pem`; the others may link it to an authority. `cluster`
  // is the one that it has to belong to.
  CertificateVerdict Verify(std::string_view chain_pem, Purpose purpose, std::string_view cluster,
                            absl::Time now);

 private:
  struct Trust;

  // Returns `before` where no file has changed.
  static absl::StatusOr<std::shared_ptr<const Trust>> Read(
      const std::string& authorities_file, const std::string& revoked_directory,
      const std::shared_ptr<const Trust>& before);

  FreshContent<Trust> trust_;
};

}  // namespace embla
