#include "core/tls/testing/test_authority.h"

#include "absl/time/clock.h"
#include "core/base/check.h"
#include "core/base/file.h"

namespace embla::testing {

TestAuthority::TestAuthority(const std::string& cluster) : cluster_(cluster) {
  absl::StatusOr<CertificateAndKey> made = MakeAuthority(cluster, absl::Hours(24), absl::Now());
  EMBLA_CHECK(made.ok());
  pem_ = *std::move(made);
  EMBLA_CHECK(AtomicWriteFile(authority_file(), pem_.certificate).ok());
}

TlsFiles TestAuthority::Issue(Role role, const std::string& name, absl::Duration lifetime) const {
  const absl::StatusOr<CertificateAndKey> issued = IssueCertificate(
      pem_, {.cluster = cluster_, .role = role, .name = name}, lifetime, absl::Now());
  EMBLA_CHECK(issued.ok());
  TlsFiles files;
  files.certificate = directory_.path() + "/" + std::string(NameOf(role)) + "-" + name + ".pem";
  files.authorities = authority_file();
  files.reload_every = absl::Seconds(1);
  EMBLA_CHECK(AtomicWriteFile(files.certificate, issued->key + issued->certificate).ok());
  return files;
}

TlsPtr TestAuthority::Load(Role role, const std::string& name) const {
  absl::StatusOr<TlsPtr> tls = Tls::Load(Issue(role, name));
  EMBLA_CHECK(tls.ok());
  return *std::move(tls);
}

void TestAuthority::Revoke(const std::vector<std::string>& serials) const {
  const absl::StatusOr<std::string> list =
      MakeRevocationList(pem_, serials, absl::Hours(1), absl::Now());
  EMBLA_CHECK(list.ok() && MakeDirectories(revoked()).ok());
  EMBLA_CHECK(AtomicWriteFile(revoked() + "/list.pem", *list).ok());
}

}  // namespace embla::testing
