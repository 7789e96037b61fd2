// Addresses of coordinators, as people write them.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace embla::client {

// InvalidArgument unless `address` is host:port or unix:/path: a word that can be no address is not
// worth waiting for.
absl::Status CheckAddress(std::string_view address);

}  // namespace embla::client
