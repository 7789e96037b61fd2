// embla node ...
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/include/embla/admin.h"
#include "tools/embla/output.h"

namespace embla::cli {

// `now` is what heartbeats are measured against.
absl::Status NodeListVerb(client::Admin& admin, absl::Time now, const Output& output);

}  // namespace embla::cli
