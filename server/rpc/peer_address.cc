#include "server/rpc/peer_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace embla {

std::string PeerAddressOf(int socket) {
  sockaddr_storage name{};
  socklen_t bytes = sizeof(name);
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return "";
  char text[INET6_ADDRSTRLEN] = {};
  if (name.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in&>(name).sin_addr, text, sizeof(text));
    return text;
  }
  if (name.ss_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<sockaddr_in6&>(name).sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
      inet_ntop(AF_INET, &v6.s6_addr[12], text, sizeof(text));
    } else {
      inet_ntop(AF_INET6, &v6, text, sizeof(text));
    }
    return text;
  }
  ucred user{};
  bytes = sizeof(user);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &user, &bytes) != 0) return "unix";
  return absl::StrCat("uid:", user.uid);
}

bool IsOwnUser(const std::string& address) {
  return !address.starts_with("uid:") || address == "uid:0" ||
         address == absl::StrCat("uid:", ::geteuid());
}

std::string PeerNameOf(int socket) {
  const std::string address = PeerAddressOf(socket);
  sockaddr_storage name{};
  socklen_t bytes = sizeof(name);
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return "";
  if (name.ss_family != AF_INET && name.ss_family != AF_INET6) return "";
  // At the same place for both families.
  const int port = ntohs(reinterpret_cast<sockaddr_in&>(name).sin_port);
  if (address.find(':') == std::string::npos) return absl::StrCat("ipv4:", address, ":", port);
  return absl::StrCat("ipv6:%5B", address, "%5D:", port);
}

}  // namespace embla
