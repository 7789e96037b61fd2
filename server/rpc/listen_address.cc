#include "server/rpc/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

// A name is resolved by others' rules, so only addresses and "localhost" count: 127.example.org is
// anybody's.
bool IsLoopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return false;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return v6.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace

std::string ListenAddress::WithPort(int bound_port) const {
  if (unix_socket) return text;
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? absl::StrCat("[", host, "]:", bound_port) : absl::StrCat(host, ":", bound_port);
}

absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text) {
  ListenAddress address;
  address.text = text;
  if (absl::StartsWith(text, "unix:")) {
    if (text.size() == 5) return absl::InvalidArgumentError("`unix:` needs a path after it");
    address.unix_socket = true;
    address.loopback = true;
    return address;
  }
  const std::size_t colon = text.rfind(':');
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  const char* const end = port.data() + port.size();
  const auto parsed = std::from_chars(port.data(), end, address.port);
  if (port.empty() || parsed.ec != std::errc() || parsed.ptr != end || address.port < 0 ||
      address.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("`", text, "` is not host:port, [ipv6]:port or unix:/path"));
  }
  address.host = text.substr(0, colon);
  if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
  } else if (address.host.empty() || address.host.find(':') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("`", text, "` has no host, or an IPv6 address without brackets"));
  }
  address.loopback = IsLoopback(address.host);
  return address;
}

absl::StatusOr<ListenAddress> CheckListenAddress(const std::string& text, bool insecure) {
  EMBLA_ASSIGN_OR_RETURN(ListenAddress address, ParseListenAddress(text));
  if (address.loopback || insecure) return address;
  return absl::FailedPreconditionError(absl::StrCat(
      "refusing to listen on ", text,
      ": connections are not encrypted and callers are not authenticated. Give --tls-cert and "
      "--tls-ca, listen on 127.0.0.1 or unix:/path, or pass --insecure if every machine that can "
      "reach this address is trusted"));
}

}  // namespace embla
