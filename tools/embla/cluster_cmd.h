// embla cluster ...
#pragma once

#include "absl/status/status.h"
#include "client/include/embla/admin.h"
#include "tools/embla/output.h"

namespace embla::cli {

absl::Status ClusterStatusVerb(client::Admin& admin, const Output& output);

}  // namespace embla::cli
