// embla token: tokens for callers that have no certificate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tools/embla/output.h"
#include "tools/embla/verb.h"

namespace embla::cli {

struct TokenFlags {
  std::string role;
  std::string name;
  std::string cluster;              // Empty: that of the authority in `directory`.
  std::string directory = "certs";  // Of `embla certs`.
  std::uint64_t days = 90;          // 0: it does not end.
};

std::vector<Verb> TokenVerbs();

// Shows the token, which is nowhere else, and the line by which servers accept it.
absl::Status TokenNewVerb(const TokenFlags& flags, absl::Time now, const Output& output);

}  // namespace embla::cli
