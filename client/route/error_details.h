// Adds what ErrorDetails tell to the errors of calls.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "client/include/embla/client.h"

namespace embla::client {

absl::Status AboutTable(absl::Status status, std::string_view table);
absl::Status AboutNode(absl::Status status, std::string_view node);
// Says that some of an update may be applied.
absl::Status OutcomeUnknown(absl::Status status);

}  // namespace embla::client
