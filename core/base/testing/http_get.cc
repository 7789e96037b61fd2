#include "core/base/testing/http_get.h"

#include <sys/socket.h>

#include "core/base/file_descriptor.h"
#include "core/base/testing/loopback.h"

namespace embla::testing {

std::string HttpGet(const std::string& address, const std::string& path) {
  const sockaddr_in peer = SocketName(address);
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto* const name = reinterpret_cast<const sockaddr*>(&peer);
  if (::connect(socket.number(), name, sizeof(peer)) != 0) return "";
  const std::string request = "GET " + path + " HTTP/1.0\r\nConnection: close\r\n\r\n";
  if (::send(socket.number(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return "";
  }
  std::string answer;
  char piece[4096];
  for (ssize_t bytes = 0; (bytes = ::recv(socket.number(), piece, sizeof(piece), 0)) > 0;) {
    answer.append(piece, static_cast<std::size_t>(bytes));
  }
  return answer;
}

}  // namespace embla::testing
