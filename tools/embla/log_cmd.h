// embla log ...: how much servers log.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/include/embla/admin.h"
#include "tools/embla/output.h"
#include "tools/embla/verb.h"

namespace embla::cli {

std::vector<Verb> LogVerbs();

// `server`: "coordinator", a node, or empty: all that are live. InvalidArgument: no such level.
absl::Status LogLevelVerb(client::Admin& admin, const std::string& server, const std::string& level,
                          const Output& output);
absl::Status LogListVerb(client::Admin& admin, const Output& output);

}  // namespace embla::cli
