#include "core/tls/certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "core/base/file.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "core/tls/certificate_authority.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;
using Purpose = TrustedAuthorities::Purpose;

class CertificateVerify : public ::testing::Test {
 protected:
  static CertificateAndKey Authority(const std::string& cluster) {
    return *MakeAuthority(cluster, absl::Hours(100), absl::Now());
  }
  static CertificateAndKey Issue(const CertificateAndKey& authority, Role role,
                                 const std::string& cluster = "test") {
    return *IssueCertificate(authority, {.cluster = cluster, .role = role, .name = "n0"},
                             absl::Hours(1), absl::Now());
  }

  void Trust(const std::string& pem) { ASSERT_THAT(AtomicWriteFile(file_, pem), IsOk()); }
  CertificateVerdict Verify(const std::string& pem, Purpose purpose = Purpose::kClient,
                            absl::Duration later = absl::ZeroDuration()) {
    TrustedAuthorities authorities(file_, revoked_);
    const absl::Status loaded = authorities.Load();
    if (!loaded.ok()) return {.status = loaded};
    return authorities.Verify(pem, purpose, "test", absl::Now() + later);
  }

  const testing::TempDirectory directory_;
  const std::string file_ = directory_.path() + "/ca.pem";
  std::string revoked_;
  const CertificateAndKey authority_ = Authority("test");
};

TEST_F(CertificateVerify, AcceptsWhatTheAuthorityHasIssued) {
  Trust(authority_.certificate);
  const CertificateVerdict verdict = Verify(Issue(authority_, Role::kTrainer).certificate);
  ASSERT_THAT(verdict.status, IsOk());
  EXPECT_EQ(UriOf(verdict.identity), "spiffe://test/trainer/n0");
}

TEST_F(CertificateVerify, AcceptsBothAuthoritiesWhileOneTakesTheOthersPlace) {
  const CertificateAndKey other = Authority("test");
  Trust(authority_.certificate + other.certificate);
  EXPECT_THAT(Verify(Issue(authority_, Role::kNode).certificate).status, IsOk());
  EXPECT_THAT(Verify(Issue(other, Role::kNode).certificate).status, IsOk());
}

TEST_F(CertificateVerify, SaysWhyACertificateIsRefused) {
  Trust(authority_.certificate);
  const std::string good = Issue(authority_, Role::kTrainer).certificate;
  struct Case {
    const char* name;
    CertificateVerdict verdict;
    TlsRefusal refusal;
    const char* why;
  };
  const Case cases[] = {
      {"none", Verify(""), TlsRefusal::kMissing, "no certificate was shown"},
      {"expired", Verify(good, Purpose::kClient, absl::Hours(2)), TlsRefusal::kExpired,
       "spiffe://test/trainer/n0"},
      {"not yet", Verify(good, Purpose::kClient, -absl::Hours(2)), TlsRefusal::kExpired,
       "is not valid before"},
      {"foreign", Verify(Issue(Authority("test"), Role::kTrainer).certificate),
       TlsRefusal::kForeign, "is signed by no authority of --tls-ca"},
      {"other cluster", Verify(Issue(authority_, Role::kNode, "other").certificate),
       TlsRefusal::kIdentity, "is of another cluster than test"},
      {"a trainer as a server", Verify(good, Purpose::kServer), TlsRefusal::kOther, "purpose"},
      {"the authority itself", Verify(authority_.certificate), TlsRefusal::kOther, "purpose"},
  };
  for (const Case& each : cases) {
    EXPECT_THAT(each.verdict.status,
                StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr(each.why)))
        << each.name;
    EXPECT_EQ(NameOf(each.verdict.refusal), NameOf(each.refusal)) << each.name;
  }
}

TEST_F(CertificateVerify, RefusesWhatIsRevokedAsSoonAsTheListSaysSo) {
  Trust(authority_.certificate);
  revoked_ = directory_.path() + "/revoked";
  ASSERT_THAT(MakeDirectories(revoked_), IsOk());
  EXPECT_THAT(Verify("").status,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no revocation list")));
  const std::string bad = Issue(authority_, Role::kTrainer).certificate;
  const std::string good = Issue(authority_, Role::kReader).certificate;
  const auto revoke = [&](const std::vector<std::string>& serials) {
    const auto list = MakeRevocationList(authority_, serials, absl::Minutes(10), absl::Now());
    ASSERT_THAT(list, IsOk());
    ASSERT_THAT(AtomicWriteFile(revoked_ + "/list.pem", *list), IsOk());
  };
  revoke({});
  TrustedAuthorities authorities(file_, revoked_);
  ASSERT_THAT(authorities.Load(), IsOk());
  const absl::Time now = absl::Now();
  EXPECT_THAT(authorities.Verify(bad, Purpose::kClient, "test", now).status, IsOk());

  revoke({ReadCertificate(bad)->serial});
  const absl::Time later = now + absl::Seconds(2);  // Files are not looked at more often.
  const CertificateVerdict verdict = authorities.Verify(bad, Purpose::kClient, "test", later);
  EXPECT_THAT(verdict.status, StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("revoked")));
  EXPECT_EQ(verdict.refusal, TlsRefusal::kRevoked);
  EXPECT_THAT(authorities.Verify(good, Purpose::kClient, "test", later).status, IsOk());
  EXPECT_THAT(authorities.Verify(good, Purpose::kClient, "test", now + absl::Minutes(20)).status,
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("out of date")));
}

TEST(CertificateRead, TellsAKeyFromAnothersKey) {
  const CertificateAndKey one = *MakeAuthority("test", absl::Hours(1), absl::Now());
  const CertificateAndKey other = *MakeAuthority("test", absl::Hours(1), absl::Now());
  EXPECT_THAT(CheckKeyPair(one.certificate, one.key), IsOk());
  EXPECT_THAT(CheckKeyPair(one.certificate, other.key),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("of another certificate")));
  EXPECT_THAT(CheckKeyPair(one.key, one.key),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no certificate")));
  EXPECT_THAT(CheckKeyPair(one.certificate, one.certificate),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no private key")));
}

TEST(CertificateAuthorityIssue, RefusesIllegalNamesAndEndsWithTheAuthority) {
  EXPECT_THAT(MakeAuthority("Prod", absl::Hours(1), absl::Now()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("trust domain")));
  const absl::Time now = absl::Now();
  const CertificateAndKey authority = *MakeAuthority("prod", absl::Hours(1), now);
  EXPECT_EQ(*ClusterOfAuthority(authority.certificate), "prod");
  EXPECT_THAT(IssueCertificate(authority, {.cluster = "prod", .role = Role::kNode, .name = "a b"},
                               absl::Hours(1), now)
                  .status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a b")));
  const auto issued = IssueCertificate(
      authority, {.cluster = "prod", .role = Role::kNode, .name = "n0"}, absl::Hours(100), now);
  ASSERT_THAT(issued, IsOk());
  EXPECT_LE(ReadCertificate(issued->certificate)->not_after, now + absl::Hours(1));
  EXPECT_THAT(IssueCertificate(*issued, {.cluster = "prod", .role = Role::kNode, .name = "n1"},
                               absl::Hours(1), now)
                  .status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no authority's")));
}

}  // namespace
}  // namespace embla
