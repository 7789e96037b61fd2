#include "client/transport/address.h"

#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "core/wire/redirect.h"

namespace embla::client {
namespace {

bool IsAddress(std::string_view address) {
  if (address.starts_with("unix:")) return true;
  const std::size_t colon = address.rfind(':');
  std::uint32_t port = 0;
  return colon != std::string_view::npos && colon > 0 &&
         address.find('/') == std::string_view::npos &&
         absl::SimpleAtoi(ToAbsl(address.substr(colon + 1)), &port) && port >= 1 && port <= 65535;
}

}  // namespace

absl::Status CheckAddresses(std::string_view addresses) {
  for (const std::string& address : wire::SplitAddresses(addresses)) {
    if (IsAddress(address)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("coordinator address \"", address, "\" is not host:port"));
  }
  return absl::OkStatus();
}

}  // namespace embla::client
