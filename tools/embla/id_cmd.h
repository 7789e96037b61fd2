// embla id explain: what the cluster knows of one id of a ZCH table.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "client/include/embla/client.h"
#include "tools/embla/output.h"

namespace embla::cli {

absl::Status IdExplainVerb(client::Client& client, const std::string& table, std::int64_t id,
                           const Output& output);

}  // namespace embla::cli
