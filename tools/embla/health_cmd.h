// embla health: whether one server is ready, for supervisors of containers.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/embla/output.h"
#include "tools/embla/verb.h"

namespace embla::cli {

std::vector<Verb> HealthVerbs();

// Asks the metrics listener at `url`, http://HOST:PORT or https://HOST:PORT, for /readyz, or for
// /healthz if `is_live` is enough, and writes its answer. Who answers is not looked at, as no probe
// does. FailedPrecondition: it is not ready; says what is missing. Unavailable: nobody answers.
// InvalidArgument: no such address.
absl::Status HealthVerb(const std::string& url, bool is_live, const Output& output);

}  // namespace embla::cli
