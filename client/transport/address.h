// Addresses of coordinators, as people write them.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace embla::client {

// InvalidArgument unless `addresses` is host:port or unix:/path, or several of them with commas in
// between: a word that can be no address is not worth waiting for.
absl::Status CheckAddresses(std::string_view addresses);

}  // namespace embla::client
