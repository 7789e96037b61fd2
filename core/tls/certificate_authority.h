// Makes the certificates of a cluster: an authority, and what it signs. For first steps, tests and
// clusters without an authority of their own; any other authority that puts
// spiffe://CLUSTER/ROLE/NAME into certificates does as well.
//
// Keys are on the curve P-256. Certificates begin five minutes before they are made, as clocks
// differ.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/tls/identity.h"

namespace embla {

// PEM texts.
struct CertificateAndKey {
  std::string certificate;
  std::string key;
};

// An authority for the cluster `cluster`, whose own certificate has the URI spiffe://CLUSTER.
// Errors: InvalidArgument (cluster's name), Internal.
absl::StatusOr<CertificateAndKey> MakeAuthority(std::string_view cluster, absl::Duration lifetime,
                                                absl::Time now);
// The cluster of an authority that MakeAuthority made. InvalidArgument: it is of none.
absl::StatusOr<std::string> ClusterOfAuthority(std::string_view certificate_pem);

// A certificate for `identity`, signed by `authority`, that ends after `lifetime`, or with the
// authority's. Coordinators and nodes may serve and call, all others may call.
// Errors: InvalidArgument (names; an authority that cannot be read), Internal.
absl::StatusOr<CertificateAndKey> IssueCertificate(const CertificateAndKey& authority,
                                                   const Identity& identity,
                                                   absl::Duration lifetime, absl::Time now);

// The revocation list of `authority`, PEM, with the certificates of `serials` (hexadecimal); valid
// for `lifetime`, after which nothing that the authority signed is accepted.
absl::StatusOr<std::string> MakeRevocationList(const CertificateAndKey& authority,
                                               std::span<const std::string> serials,
                                               absl::Duration lifetime, absl::Time now);

}  // namespace embla
