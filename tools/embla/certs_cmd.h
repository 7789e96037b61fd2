// `embla certs`: the certificates of a cluster that has no authority of its own.
//
// An authority is a directory: ca.pem goes to every program (--tls-ca), ca.key stays. Certificates
// are one file each, with the key, so that a renewed one takes the place of the old one at once.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/embla/output.h"

namespace embla::cli {

struct CertsFlags {
  std::string directory = "certs";  // The authority's.
  std::string cluster;
  std::string role;
  std::string name;
  std::string out;  // Empty: directory/ROLE-NAME.pem.
  int authority_days = 3650;
  int days = 30;
  int list_days = 30;
  std::vector<std::string> files;
};

// AlreadyExists: there is an authority, and its certificates would be worthless.
absl::Status CertsInitVerb(const CertsFlags& flags, const Output& output);
absl::Status CertsIssueVerb(const CertsFlags& flags, const Output& output);
absl::Status CertsShowVerb(const CertsFlags& flags, const Output& output);
// Adds the certificates of `files` to directory/revoked/list.pem, which is made anew in any case.
absl::Status CertsRevokeVerb(const CertsFlags& flags, const Output& output);

}  // namespace embla::cli
