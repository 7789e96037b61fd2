// An authority and certificates in files, for tests.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "core/base/testing/temp_directory.h"
#include "core/tls/certificate_authority.h"
#include "core/tls/tls.h"

namespace embla::testing {

class TestAuthority {
 public:
  explicit TestAuthority(const std::string& cluster = "test");

  // Writes a certificate of `role` and `name`, with its key, to one file of the directory, in place
  // of what is there. `lifetime` may be negative: it is over then.
  TlsFiles Issue(Role role, const std::string& name,
                 absl::Duration lifetime = absl::Hours(1)) const;
  // Loads what Issue has written.
  TlsPtr Load(Role role, const std::string& name) const;
  // Makes the list of `serials` the authority's, in the directory revoked().
  void Revoke(const std::vector<std::string>& serials) const;

  const CertificateAndKey& pem() const { return pem_; }
  std::string directory() const { return directory_.path(); }
  std::string authority_file() const { return directory_.path() + "/ca.pem"; }
  std::string revoked() const { return directory_.path() + "/revoked"; }

 private:
  const TempDirectory directory_;
  const std::string cluster_;
  CertificateAndKey pem_;
};

}  // namespace embla::testing
