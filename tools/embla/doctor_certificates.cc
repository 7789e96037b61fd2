#include "tools/embla/doctor_certificates.h"

#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/text.h"
#include "core/tls/certificate.h"

namespace embla::cli {
namespace {

constexpr absl::Duration kCertificateMargin = absl::Hours(24 * 7);
constexpr absl::Duration kAuthorityMargin = absl::Hours(24 * 90);
constexpr absl::Duration kListMargin = absl::Hours(24 * 3);

// The texts of a user's files.
struct Texts {
  std::string certificate;
  std::string key;
  std::string authorities;
};

std::string KeyFile(const client::TlsOptions& files) {
  return files.key.empty() ? files.certificate : files.key;
}

std::optional<Texts> ReadTexts(const CertificateUser& user, Report& report) {
  const client::TlsOptions& files = user.files;
  if (files.certificate.empty() || files.authorities.empty()) {
    report.Add("tls-incomplete", user.where,
               files.certificate.empty() ? "there is no tls-cert" : "there is no tls-ca");
    return std::nullopt;
  }
  const auto certificate = ReadStatedFile("tls-cert", files.certificate);
  const auto key = ReadStatedFile("tls-key", KeyFile(files));
  const auto authorities = ReadStatedFile("tls-ca", files.authorities);
  for (const auto* const text : {&certificate, &key, &authorities}) {
    if (text->ok()) continue;
    report.Add("tls-incomplete", user.where, Message(text->status()));
    return std::nullopt;
  }
  return Texts{*certificate, *key, *authorities};
}

// Three quarters of its life are over, and it ends within `margin`: certificates that live for an
// hour are renewed all the time.
bool EndsSoon(const CertificateFacts& facts, absl::Duration margin, absl::Time now) {
  const absl::Duration left = facts.not_after - now;
  return left < margin && left < (facts.not_after - facts.not_before) / 4;
}

void CheckKey(const CertificateUser& user, const Texts& texts, Report& report) {
  const std::string file = KeyFile(user.files);
  struct stat key = {};
  if (::stat(file.c_str(), &key) == 0 && (key.st_mode & S_IRWXO) != 0) {
    report.Add("secret-readable", file, absl::StrFormat("its mode is %04o", key.st_mode & 0777u));
  }
  const absl::Status pair = CheckKeyPair(texts.certificate, texts.key);
  if (!pair.ok()) report.Add("key-mismatch", file, Message(pair));
}

std::string_view CheckFor(TlsRefusal refusal) {
  switch (refusal) {
    case TlsRefusal::kExpired:
      return "certificate-expired";
    case TlsRefusal::kRevoked:
      return "certificate-revoked";
    case TlsRefusal::kIdentity:
      return "certificate-identity";
    case TlsRefusal::kOther:  // A certificate of a client at a server, above all.
      return "certificate-role";
    case TlsRefusal::kForeign:
    case TlsRefusal::kMissing:
      break;
  }
  return "certificate-foreign";
}

void CheckRole(const CertificateUser& user, const Identity& identity, Report& report) {
  const bool may_ask = identity.role != Role::kCoordinator && identity.role != Role::kNode;
  if (user.role.has_value() ? identity.role != *user.role : !may_ask) {
    report.Add("certificate-role", user.files.certificate,
               absl::StrCat(user.where, " shows ", UriOf(identity)));
  }
  if (!user.name.empty() && user.name != identity.name) {
    report.Add(
        "certificate-name", user.files.certificate,
        absl::StrCat(user.where, " has the name ", user.name, " and shows ", UriOf(identity)));
  }
}

}  // namespace

void CheckCertificates(const CertificateUser& user, absl::Time now, Report& report) {
  const client::TlsOptions& files = user.files;
  if (files.certificate.empty() && files.authorities.empty() && files.key.empty()) return;
  if (!files.token.empty()) return;  // It takes the certificate's place.
  const std::optional<Texts> texts = ReadTexts(user, report);
  if (!texts.has_value()) return;
  const auto facts = ReadCertificate(texts->certificate);
  if (!facts.ok()) {
    report.Add("tls-incomplete", user.where, Message(Annotate(facts.status(), files.certificate)));
    return;
  }
  CheckKey(user, *texts, report);
  const auto identity = IdentityFrom(facts->uri);
  if (!identity.ok()) {
    report.Add("certificate-identity", files.certificate, Message(identity.status()));
    return;
  }
  CheckRole(user, *identity, report);
  TrustedAuthorities trusted(files.authorities, files.revoked);
  if (const absl::Status loaded = trusted.Load(); !loaded.ok()) {
    report.Add("tls-incomplete", user.where, Message(loaded));
    return;
  }
  const bool is_server = identity->role == Role::kCoordinator || identity->role == Role::kNode;
  const auto judge = [&](absl::Time at) {
    return trusted.Verify(
        texts->certificate,
        is_server ? TrustedAuthorities::Purpose::kServer : TrustedAuthorities::Purpose::kClient,
        identity->cluster, at);
  };
  if (const CertificateVerdict verdict = judge(now); !verdict.status.ok()) {
    report.Add(CheckFor(verdict.refusal), files.certificate, Message(verdict.status));
    return;
  }
  if (EndsSoon(*facts, kCertificateMargin, now)) {
    report.Add("certificate-ends", files.certificate,
               absl::StrCat("it ends at ", TimeText(facts->not_after)));
  }
  const auto authority = ReadCertificate(texts->authorities);
  if (authority.ok() && EndsSoon(*authority, kAuthorityMargin, now)) {
    report.Add("authority-ends", files.authorities,
               absl::StrCat("it ends at ", TimeText(authority->not_after)));
  }
  // A certificate that ends sooner says nothing of a list.
  const absl::Time later = std::min(now + kListMargin, facts->not_after - absl::Seconds(1));
  if (judge(later).refusal == TlsRefusal::kRevoked && !judge(later).status.ok()) {
    report.Add("revocation-list-ends", files.revoked, Message(judge(later).status));
  }
}

}  // namespace embla::cli
