#include "client/transport/address.h"

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/text.h"

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

absl::Status CheckAddress(std::string_view address) {
  if (IsAddress(address)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("coordinator address \"", ToAbsl(address), "\" is not host:port"));
}

}  // namespace embla::client
