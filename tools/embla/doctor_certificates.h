// Certificates, their keys, authorities and revocation lists, as `embla doctor` looks at them.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "client/include/embla/tls.h"
#include "core/tls/identity.h"
#include "tools/embla/doctor_report.h"

namespace embla::cli {

// A program that shows a certificate.
struct CertificateUser {
  std::string where;  // "/etc/embla/shard.conf"
  client::TlsOptions files;
  std::optional<Role> role = {};  // Nothing: whoever may ask a coordinator.
  std::string name = {};          // The node's --name; empty: the certificate's.
};

void CheckCertificates(const CertificateUser& user, absl::Time now, Report& report);

}  // namespace embla::cli
